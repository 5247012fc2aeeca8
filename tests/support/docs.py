"""Run the Python blocks of a documentation page, as a reader would: in order, in one namespace.

A ``print(...)`` with a comment behind it states what it prints; ``...`` in the comment stands for anything. In a
``try`` or a loop every ``print`` must run once.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One runnable block and the line of the page on which its code starts."""

    page: Path
    line: int
    code: str

    def parse(self) -> ast.Module:
        """The block's syntax tree, with the page's line numbers."""
        return ast.increment_lineno(ast.parse(self.code), self.line - 1)

    def comment(self, node: ast.stmt) -> str:
        """The comment behind a statement of `parse`."""
        line = self.code.splitlines()[(node.end_lineno or 0) - self.line].encode()
        behind = line[node.end_col_offset :].decode().strip()
        return behind.removeprefix("#").strip()


def read_blocks(page: str) -> tuple[Block, ...]:
    """The runnable blocks of a page of docs/, or of the README."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    return tuple(
        Block(page=path, line=text.count("\n", 0, match.start(1)) + 1, code=match.group(1))
        for match in _FENCE.finditer(text)
    )


def run_page(page: str, *, with_cpp: bool = True, with_cuda: bool = True) -> int:
    """Run a page's blocks and compare what they print with what the page says.

    Parameters
    ----------
    page : str
        Its path in the repository.
    with_cpp, with_cuda : bool
        Whether to run blocks that load C++, and those that load CUDA.

    Returns
    -------
    int
        How many outputs were compared.
    """
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    compared = 0
    for block in read_blocks(page):
        if ("load_cpp_" in block.code and not with_cpp) or ("load_cuda_" in block.code and not with_cuda):
            continue
        for node in block.parse().body:
            printed = _execute(node, block, namespace)
            expected = [block.comment(each) for each in _prints(node)]
            assert _matches(" ".join(text or "..." for text in expected), printed), (
                f"{block.page.name}:{node.lineno}: the page says {expected}, printed was {printed.strip()!r}"
            )
            compared += sum(map(bool, expected))
    return compared


def build_cuda_sources(page: str, arch: str) -> int:
    """Compile what a page's CUDA blocks load, for an architecture that need not be here; call nothing.

    Returns
    -------
    int
        How many load calls were made.
    """
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    loads = 0
    for block in read_blocks(page):
        for node in block.parse().body:
            names = _called_names(node)
            is_load = any(name.startswith("load_cuda_") for name in names)
            is_setup = isinstance(node, ast.Import | ast.ImportFrom) or _is_constant(node)
            if is_load or is_setup or names & {"write_text", "mkdir"}:
                _execute(_ForArch(arch).visit(node), block, namespace)
                loads += is_load
    return loads


class _ForArch(ast.NodeTransformer):
    """Gives every load call an architecture, and keeps it from registering a target."""

    def __init__(self, arch: str) -> None:
        self._forced: dict[str, str | bool] = {"compute_capability": arch, "auto_register": False}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if _name(node.func).startswith("load_cuda_"):
            kept = [keyword for keyword in node.keywords if keyword.arg not in self._forced]
            forced = [ast.keyword(arg, ast.Constant(value)) for arg, value in self._forced.items()]
            node.keywords = kept + forced
        return ast.fix_missing_locations(node)


def _execute(node: ast.stmt, block: Block, namespace: dict[str, Any]) -> str:
    code = compile(ast.Module([node], []), str(block.page), "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, namespace)  # noqa: S102 - it is our own page
    return out.getvalue()


def _matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(pattern, " ".join(printed.split())) is not None


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _called_names(node: ast.stmt) -> set[str]:
    return {_name(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}


def _prints(node: ast.stmt) -> list[ast.Expr]:
    """The calls of print that a statement makes itself, in order."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return []
    found = [each for each in ast.walk(node) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    return sorted((each for each in found if _called_names(each) >= {"print"}), key=lambda each: each.lineno)


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
