"""The recipe as conda-forge wants it: from the released sdist, with the facts that only a release knows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from release.problems import ReleaseError


def feedstock_recipe(recipe: str, *, url: str, sha256: str, homepage: str, maintainers: Sequence[str]) -> str:
    """The text of a feedstock's ``recipe.yaml``.

    Parameters
    ----------
    recipe : str
        The text of the repository's own, whose source is the checkout.
    url : str
        Where the sdist can be downloaded; the version in it is replaced by ``${{ version }}``.
    sha256 : str
        The sdist's digest.
    homepage : str
        The project's page.
    maintainers : sequence of str
        GitHub names.

    Raises
    ------
    ReleaseError
        The sdist's name lacks the recipe's version, or the recipe has no section of that name.

    Examples
    --------
    >>> from release import ROOT
    >>> recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
    >>> text = feedstock_recipe(
    ...     recipe,
    ...     url=f"https://example.org/files/brainevent_toolchain-{recipe_version(recipe)}.tar.gz",
    ...     sha256="ab" * 32,
    ...     homepage="https://example.org",
    ...     maintainers=["octocat"],
    ... )
    >>> print(text[text.index("source:") :][:158])
    source:
      url: https://example.org/files/brainevent_toolchain-${{ version }}.tar.gz
      sha256: abababababababababababababababababababababababababababababababab
    """
    version = recipe_version(recipe)
    if f"-{version}.tar.gz" not in url:
        raise ReleaseError(f"the URL {url!r} is not that of an sdist of version {version}, which the recipe is for")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ReleaseError(f"{sha256!r} is no SHA-256")
    source = f"source:\n  url: {url.replace(version, '${{ version }}')}\n  sha256: {sha256}\n"
    text = _replace_section(recipe, "source", source)
    about = _section(text, "about")
    text = text.replace(about, about.replace("about:\n", f"about:\n  homepage: {homepage}\n", 1))
    names = "".join(f"    - {name}\n" for name in maintainers)
    return f"{text}\nextra:\n  recipe-maintainers:\n{names}"


def recipe_version(recipe: str) -> str:
    """The version in a recipe's context.

    >>> recipe_version('  version: "1.0"')
    '1.0'
    """
    found = re.search(r'^  version: "([^"]+)"$', recipe, re.MULTILINE)
    if found is None:
        raise ReleaseError("the recipe's context has no quoted version")
    return found[1]


def sha256_of(path: Path) -> str:
    """A file's SHA-256.

    Raises
    ------
    ReleaseError
        There is no such file.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ReleaseError(f"{path} can't be read: {error.strerror}") from None


def _section(recipe: str, name: str) -> str:
    """A top-level section of a recipe, up to the next line that is not indented."""
    found = re.search(rf"^{name}:\n(?:(?:[ ].*)?\n)*?(?=\S|\Z)", recipe, re.MULTILINE)
    if found is None:
        raise ReleaseError(f"the recipe has no section {name}")
    return found[0]


def _replace_section(recipe: str, name: str, text: str) -> str:
    old = _section(recipe, name)
    blank = old[len(old.rstrip("\n")) + 1 :]
    return recipe.replace(old, text + blank)
