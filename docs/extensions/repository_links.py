"""Links between files of the repository, as links between pages of the site. Pure but for looking at what is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)(?=[)#])")
"""The path of a link in Markdown."""

PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "docker/README.md",
    "examples/mykernels/README.md",
    "recipe/README.md",
    "release/README.md",
)
"""Pages outside of docs/ that the site has."""

PLACE = PurePosixPath("generated/repository")
"""Where they lie on the site, below docs/."""


GUIDES = ("docker/README.md", "examples/mykernels/README.md")
"""Those that are guides for users: the site's search finds them."""

HEAD = "---\norphan: true\nno-search: true\n---\n\n"
"""The head of the others' sources: outside of navigation, unless a page lists them, and of search."""


def find_target(link: str, page: PurePosixPath, root: Path) -> PurePosixPath | None:
    """Find the file of the repository outside of docs/ that a link on a page leads to; none if there is none.

    Of a folder it is the README.md, if it has one.
    """
    target = PurePosixPath(os.path.normpath(page.parent / link))
    if target.parts[0] in ("..", "docs") or not (root / target).exists():
        return None
    readme = target / "README.md"
    return readme if (root / readme).is_file() else target


def page_of(target: PurePosixPath) -> str:
    """Name the page that shows a file or folder, from the root of the site.

    Examples
    --------
    >>> page_of(PurePosixPath("examples/demo.py"))
    '/generated/repository/examples/demo.py.md'
    """
    shown = target if target.suffix == ".md" else target.with_name(target.name + ".md")
    return f"/{PLACE / shown}"


def rewrite_links(text: str, page: PurePosixPath, root: Path) -> str:
    """Let the links of a page lead to pages of the site; those that lead nowhere stay, and Sphinx warns of them."""

    def rewritten(match: re.Match[str]) -> str:
        target = find_target(match[1], page, root)
        if target is not None:
            return page_of(target)
        normal = PurePosixPath(os.path.normpath(page.parent / match[1]))
        inside = normal.parts[0] == "docs" and page.parts[0] != "docs"
        return f"/{normal.relative_to('docs')}" if inside else match[1]

    return LINK.sub(rewritten, text)


def find_linked(pages: Iterable[PurePosixPath], root: Path) -> dict[PurePosixPath, str]:
    """Find all that pages link to outside of docs/, and what that links to: each with its page's text."""
    found: dict[PurePosixPath, str] = {}
    left = [*pages, *map(PurePosixPath, PAGES)]
    seen = set(left)
    while left:
        page = left.pop()
        is_page = page.suffix == ".md"
        text = (root / page).read_text(encoding="utf-8") if is_page else ""
        if page.parts[0] != "docs":
            head = HEAD.replace("no-search: true\n", "") if str(page) in GUIDES else HEAD
            found[page] = head + (rewrite_links(text, page, root) if is_page else _show(page, root))
        links = LINK.findall(text) if is_page else _names(root / page)
        base = page if is_page else page / "any"
        targets = {target for link in links if (target := find_target(link, base, root)) is not None} - seen
        seen |= targets
        left.extend(sorted(targets))
    return found


def _names(path: Path) -> tuple[str, ...]:
    """Names of the files of a folder, without those that are not text; none of a file."""
    texts = (".py", ".cc", ".cu", ".h", ".toml", ".yaml", ".json", ".txt", ".sh", ".md")
    return tuple(sorted(each.name for each in path.iterdir() if each.suffix in texts)) if path.is_dir() else ()


def _show(target: PurePosixPath, root: Path) -> str:
    """The page of a file, which shows it, or of a folder, which lists it."""
    head = f"# {target.name}\n\n`{target}` is in the repository.\n\n"
    if (root / target).is_dir():
        return head + "".join(f"- [{name}]({page_of(target / name)})\n" for name in _names(root / target))
    up = "../" * (len(PLACE.parts) + len(target.parts))
    language = LANGUAGES.get(target.suffix, "text")
    return f"{head}```{{literalinclude}} {up}{target}\n:language: {language}\n```\n"


LANGUAGES: Mapping[str, str] = {
    ".cc": "c++",
    ".cu": "c++",
    ".h": "c++",
    ".hcl": "text",
    ".json": "json",
    ".py": "python",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
}
