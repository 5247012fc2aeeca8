"""README's links and the project's URLs, as a package index shows them: from one setting of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")
"""A link or a picture of Markdown whose target is in the repository."""


def read_repository(pyproject: str) -> str:
    r"""Return the address of the public repository, empty if there is none.

    Examples
    --------
    >>> read_repository('[tool.be-release]\nrepository = "https://example.org/a/b"')
    'https://example.org/a/b'
    """
    address: str = tomllib.loads(pyproject)["tool"]["be-release"]["repository"]
    return address


def resolve_links(readme: str, repository: str, tag: str) -> str:
    """Make links absolute. Without a repository, their text remains, and pictures are left out.

    Examples
    --------
    >>> text = "See [Install](docs/install.md). ![Bars](docs/bars.svg)"
    >>> resolve_links(text, "https://example.org/a/b", "v1.0")
    'See [Install](https://example.org/a/b/blob/v1.0/docs/install.md). ![Bars](https://example.org/a/b/raw/v1.0/docs/bars.svg)'
    >>> resolve_links(text, "", "v1.0")
    'See Install. '
    """
    if not repository:
        return LINK.sub(lambda link: "" if link[1] else link[2], readme)
    kinds = {"": "blob", "!": "raw"}
    return LINK.sub(lambda link: f"{link[1]}[{link[2]}]({repository}/{kinds[link[1]]}/{tag}/{link[3]})", readme)


def add_urls(pyproject: str, repository: str, tag: str) -> str:
    r"""Add ``[project.urls]``, if there is a repository.

    Examples
    --------
    >>> print(add_urls('[project]\nname = "a"\n', "https://example.org/a/b", "v1.0"))
    [project]
    name = "a"
    <BLANKLINE>
    [project.urls]
    Source = "https://example.org/a/b"
    Documentation = "https://example.org/a/b/blob/v1.0/docs/index.md"
    Changelog = "https://example.org/a/b/blob/v1.0/CHANGELOG.md"
    Issues = "https://example.org/a/b/issues"
    <BLANKLINE>
    """
    if not repository:
        return pyproject
    urls = {
        "Source": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return f"{pyproject}\n[project.urls]\n{lines}"


def write_links(tree: Path, version: str) -> None:
    """Rewrite README.md and pyproject.toml of a tree that is about to be built."""
    readme, pyproject = tree / "README.md", tree / "pyproject.toml"
    settings = pyproject.read_text(encoding="utf-8")
    repository = read_repository(settings)
    readme.write_text(resolve_links(readme.read_text(encoding="utf-8"), repository, f"v{version}"), encoding="utf-8")
    pyproject.write_text(add_urls(settings, repository, f"v{version}"), encoding="utf-8")
