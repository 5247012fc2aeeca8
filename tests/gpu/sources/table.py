"""Write the table of `docs/other-compilers.md` from the cells of a test run: ``table.py FOLDER OUT.inc CAPTION``.

`FOLDER` is what ``BE_TABLE`` named for ``pytest tests/gpu/sources``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROWS = {
    "cpp": "C++",
    "cuda": "CUDA",
    "numba": "Numba CUDA",
    "triton": "Triton",
    "jax-triton": "*jax-triton*",
    "cute": "CuTe DSL",
    "cutlass.jax": "*cutlass.jax*",
    "cutile": "cuTile",
    "cuda.tile.jax": "*cuda.tile.jax*",
    "tvm_ffi": "TVM-FFI",
    "jax-tvm-ffi": "*jax-tvm-ffi*",
}
"""Rows of the table; those in italics are other projects' bridges."""
COLUMNS = (
    *("jit", "CUDA graphs", "vmap", "derivative", "sharding", "checked mode", "second process", "wheel"),
    "exported program",
)
YES = "✓"


def render(cells: dict[str, dict[str, Any]], caption: str) -> str:
    """The table, and below it the reason of each cell that is not right."""
    notes: list[str] = []
    lines = [f"| source | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, title in ROWS.items():
        row = [_cell(cells.get(name, {}).get(column), notes) for column in COLUMNS]
        lines.append(f"| {title} | {' | '.join(row)} |")
    listed = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", caption, "", *listed]) + "\n"


def _cell(found: dict[str, Any] | None, notes: list[str]) -> str:
    if found is None:
        return "not run"
    if "reason" not in found:
        return f"{YES * found.get('is_proven', True)} {found.get('times', '')}".strip()
    reason = re.sub(r"^[\w.]*?(\w+(?:Error|Exception)): ", r"`\1`: ", found["reason"].strip().replace("|", "/"))
    if reason in ("none", "not applicable"):
        return reason
    if reason not in notes:
        notes.append(reason)
    return f"no, {notes.index(reason) + 1}"


def main(folder: str, out: str, caption: str) -> None:
    """Read the files of all workers, and write the table."""
    cells: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(folder).glob("*.json")):
        for name, row in json.loads(path.read_text()).items():
            cells.setdefault(name, {}).update(row)
    Path(out).write_text(render(cells, caption))


if __name__ == "__main__":
    main(*sys.argv[1:])
