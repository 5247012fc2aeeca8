"""Pages in MyST's notation for notebooks: read as cells, and run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"```\{code-cell\} ipython3")
_TAGS = re.compile(r":tags: \[(.*)\]")

PARAMETERS = "parameters"
"""Tag of the cell whose names may be set anew after it, as papermill does."""
FIGURE = "figure"
"""Tag of a cell that draws, with matplotlib."""
SITE = "site"
"""Tag of text for the site alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a page.

    Parameters
    ----------
    source : str
    line : int
        The page's line on which `source` begins, from 1.
    is_code : bool
    tags : tuple of str
    """

    source: str
    line: int
    is_code: bool
    tags: tuple[str, ...] = ()


def parse_page(text: str) -> tuple[Cell, ...]:
    r"""The cells of a page, without its front matter.

    Examples
    --------
    >>> [cell] = parse_page("```{code-cell} ipython3\n:tags: [figure]\n\nx = 1\n```\n")
    >>> cell.source, cell.line, cell.tags
    ('x = 1', 4, ('figure',))
    """
    lines = text.splitlines()
    start = lines.index("---", 1) + 1 if lines[:1] == ["---"] else 0
    cells: list[Cell] = []
    tags: tuple[str, ...] = ()
    markdown = start
    index = start
    while index < len(lines):
        if _FENCE.fullmatch(lines[index]):
            cells += _cell(lines, markdown, index, is_code=False, tags=tags)
            end = lines.index("```", index)
            found = _TAGS.fullmatch(lines[index + 1])
            names = tuple(re.split(r",\s*", found[1])) if found else ()
            cells += _cell(lines, index + 1 + bool(found), end, is_code=True, tags=names)
            tags, markdown, index = (), end + 1, end
        elif lines[index].startswith("+++"):
            cells += _cell(lines, markdown, index, is_code=False, tags=tags)
            tags, markdown = tuple(json.loads(lines[index][3:] or "{}").get("tags", ())), index + 1
        index += 1
    return (*cells, *_cell(lines, markdown, len(lines), is_code=False, tags=tags))


def _cell(lines: list[str], start: int, end: int, *, is_code: bool, tags: tuple[str, ...]) -> list[Cell]:
    """The cell between two lines; none if nothing stands there."""
    filled = [index for index in range(start, end) if lines[index].strip()]
    if not filled:
        return []
    source = "\n".join(lines[filled[0] : filled[-1] + 1])
    return [Cell(source=source, line=filled[0] + 1, is_code=is_code, tags=tags)]


class Run:
    """A page that is run step by step.

    Parameters
    ----------
    path : Path
    parameters : str
        Statements that run behind the cell of parameters.
    without : iterable of str
        Tags of cells that are left out.
    """

    def __init__(self, path: Path, parameters: str = "", without: Iterable[str] = ()) -> None:
        left_out = frozenset(without)
        cells = parse_page(path.read_text(encoding="utf-8"))
        self._cells = [cell for cell in cells if cell.is_code and not left_out & set(cell.tags)]
        self._path, self._parameters = path, parameters
        self.namespace: dict[str, Any] = {"__name__": "__page__"}

    def until(self, name: str | None = None) -> dict[str, Any]:
        """Run cells until one has defined a name, by default all that remain; give back the page's names."""
        while self._cells and (name is None or name not in self.namespace):
            cell = self._cells.pop(0)
            code = compile("\n" * (cell.line - 1) + cell.source, str(self._path), "exec")
            exec(code, self.namespace)  # noqa: S102 - it is our own page
            if PARAMETERS in cell.tags:
                exec(self._parameters, self.namespace)  # noqa: S102 - as above
        return self.namespace
