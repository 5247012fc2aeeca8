"""Whether a checkout can be released: every place that names a version names one, and nothing is left open.

`prepare` writes a new version into these places.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import be_runtime
import be_toolchain
from release.feedstock import recipe_version
from release.problems import ReleaseError

REMAINING = (
    "name the public repository in pyproject.toml, [tool.be-release]; until then README on an index has no links",
    "push the tag: the release workflow builds from it, and uploads what it built",
    "sign: the workflow attests where the files were built, which needs GitHub's identity service",
    "upload to PyPI, through a trusted publisher that the project's owner has to set up once",
    "build the images on NVIDIA's and Ubuntu's own bases, pin those by digest, and push them to a registry",
    "build and run on arm64: the recipe and the images name it, and no test ran there",
    "run the tier gpu on a machine with a GPU",
    "python -m release feedstock, and a pull request with it to conda-forge/staged-recipes or to the feedstock",
)
"""What no machine without accounts, registries and other hardware can do."""

_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


class State(NamedTuple):
    """What of a checkout decides.

    Parameters
    ----------
    versions : dict
        The version that each place names, by the place.
    changelog : str
        The text of ``CHANGELOG.md``.
    uncommitted : tuple of str
        Files that differ from the last commit.
    """

    versions: dict[str, str]
    changelog: str
    uncommitted: tuple[str, ...] = ()


def read_state(root: Path) -> State:
    """Read a checkout."""
    recipe = (root / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    asked = ("git", "-C", str(root), "status", "--porcelain")
    status = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return State(
        versions={
            "be_toolchain": be_toolchain.__version__,
            "be_runtime": be_runtime.__version__,
            "recipe/recipe.yaml": recipe_version(recipe),
        },
        changelog=(root / "CHANGELOG.md").read_text(encoding="utf-8"),
        uncommitted=tuple(line[3:] for line in status.splitlines()),
    )


def prepare(root: Path, version: str, date: str) -> list[Path]:
    """Write a version into every place that names it, and close the changelog's open section; return the files.

    Parameters
    ----------
    root : Path
        The checkout.
    version : str
        The version to release, such as ``1.2.0``.
    date : str
        The date of the release, as ``2026-01-31``.

    Raises
    ------
    ReleaseError
        The version is malformed or not newer than the present one, or the changelog has nothing under [Unreleased].
    """
    from packaging.version import InvalidVersion, Version  # conda's build has no packaging

    old = be_toolchain.__version__
    try:
        is_newer = Version(version) > Version(old) and str(Version(version)) == version
    except InvalidVersion:
        is_newer = False
    if not is_newer:
        raise ReleaseError(f"{version!r} is not a version after {old}: write it as {old} is written")
    heading = f"## [Unreleased]\n\n## [{version}] - {date}\n"
    texts = {}
    for name, before, after in (
        ("be_toolchain/__init__.py", f'__version__ = "{old}"\n', f'__version__ = "{version}"\n'),
        ("recipe/recipe.yaml", f'  version: "{old}"\n', f'  version: "{version}"\n'),
        ("CHANGELOG.md", "## [Unreleased]\n", heading),
    ):
        text = (root / name).read_text(encoding="utf-8")
        if text.count(before) != 1 or (name == "CHANGELOG.md" and not _unreleased(text)):
            raise ReleaseError(f"{name} has no {before.strip()!r}" if before not in text else f"nothing new in {name}")
        texts[root / name] = text.replace(before, after)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)


def find_problems(state: State, tag: str) -> list[str]:
    """What stands against a release.

    Parameters
    ----------
    state : State
        The checkout's.
    tag : str
        The tag to release, or empty.

    Examples
    --------
    >>> state = State({"be_toolchain": "1.0", "recipe": "0.9"}, "## [1.0] - 2026-01-01")
    >>> find_problems(state, "v1.0")
    ['recipe says version 0.9, be_toolchain 1.0']
    """
    version = state.versions["be_toolchain"]
    problems = [
        f"{place} says version {other}, be_toolchain {version}"
        for place, other in state.versions.items()
        if other != version
    ]
    if tag and tag != f"v{version}":
        problems.append(
            f"the tag is {tag}, the version {version}: tag v{version}, or change __version__ in both packages"
        )
    problems += _changelog_problems(state.changelog, version)
    if state.uncommitted:
        problems.append(
            f"not committed: {', '.join(state.uncommitted[:5])}{' ...' if len(state.uncommitted) > 5 else ''}"
        )
    return problems


def _changelog_problems(changelog: str, version: str) -> list[str]:
    sections = {match["version"]: match for match in _HEADING.finditer(changelog)}
    if version not in sections:
        return [f"CHANGELOG.md has no section [{version}]"]
    problems = (
        [] if sections[version]["date"] else [f"CHANGELOG.md: [{version}] has no date, as in [{version}] - 2026-01-31"]
    )
    if _unreleased(changelog):
        problems.append(f"CHANGELOG.md: what is under [Unreleased] belongs to a version: [{version}], or a new one")
    return problems


def _unreleased(changelog: str) -> str:
    """Return the text of the changelog's open section."""
    return changelog.partition("## [Unreleased]\n")[2].partition("\n## ")[0].strip()
