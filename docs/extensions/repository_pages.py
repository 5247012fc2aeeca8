"""Gives the site a page for each file outside of docs/ that a page links to, and lets links lead there."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from repository_links import PLACE, find_linked, rewrite_links
from sphinx.application import Sphinx


def write_pages(app: Sphinx) -> None:
    """Write the pages below docs/generated/; those that are as they were stay, so that Sphinx need not read them."""
    docs = Path(app.srcdir)
    generated = docs / "generated"
    tracked = (page for page in sorted(docs.rglob("*.md")) if generated not in page.parents)
    pages = find_linked((PurePosixPath("docs") / page.relative_to(docs).as_posix() for page in tracked), docs.parent)
    wanted = {docs / PLACE / (str(each) if each.suffix == ".md" else f"{each}.md"): pages[each] for each in pages}
    place = docs / PLACE
    if place.is_dir():
        for old in [path for path in place.rglob("*.md") if path not in wanted]:
            old.unlink()
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def rewrite_source(app: Sphinx, name: str, content: list[str]) -> None:
    """Let the links of a page of docs/ lead to pages of the site."""
    if not name.startswith("generated/"):
        page = PurePosixPath("docs") / f"{name}.md"
        content[0] = rewrite_links(content[0], page, Path(app.srcdir).parent)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", rewrite_source)
    return {"parallel_read_safe": True}
