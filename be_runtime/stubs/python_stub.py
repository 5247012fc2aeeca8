"""The stub of an author's Python module, apart from its kernels. Pure.

Functions and classes keep their signatures, other names their values, from which a type checker infers types.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

_LONGEST_TEXT = 200
_CONSTANTS = (bool, bytes, complex, float, int, str)
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_AS_THEY_ARE = ("Import", "ImportFrom", "AugAssign", "TypeAlias")
"""Statements that a stub has too; Python 3.11 has no node for the last."""


def python_stub(source: str, kernels: Collection[str], names: Collection[str]) -> str:
    r"""Write the stub of a module.

    Parameters
    ----------
    source : str
        Python code.
    kernels : collection of str
        Names that the stub leaves out, because they are kernels or modules of kernels.
    names : collection of str
        Public names of the module when it is imported; those that no statement of the stub binds can be anything.

    Raises
    ------
    SyntaxError
        The source is not Python.

    Examples
    --------
    >>> print(python_stub("import os\nN = 3\nops = load()\ndef f(x: int) -> int:\n    return x", ["ops"], []))
    import os
    N: int
    <BLANKLINE>
    def f(x: int) -> int:
        ...
    """
    tree = ast.parse(source)
    tree.body = [*_doc(tree), *_kept(tree.body, frozenset(kernels))]
    bound = {*kernels, *_bound(tree)}
    if "*" not in bound:
        tree.body += [_declared(name, _parsed("typing.Any")) for name in names if name not in bound]
    return ast.unparse(ast.fix_missing_locations(_Shortened().visit(tree))) + "\n"


def imported_names(source: str) -> frozenset[str]:
    """Return the names that import statements of a module bind."""
    aliases = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.alias))
    return frozenset(name for alias in aliases for name in _bound(alias))


def _bound(tree: ast.AST) -> Iterator[str]:
    """List the names that a tree binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, _NAMED):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _kept(statements: Sequence[ast.stmt], kernels: frozenset[str], *, in_class: bool = False) -> list[ast.stmt]:
    """Return the statements of a stub for those of a module, a branch or a class."""
    kept: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [*_doc(node), _nothing()]
        elif isinstance(node, ast.ClassDef):
            found = [*_doc(node), *_attributes(node), *_kept(node.body, kernels, in_class=True)]
            node.body = found or [_nothing()]
        elif isinstance(node, ast.If):
            node.body = _kept(node.body, kernels, in_class=in_class) or [_nothing()]
            node.orelse = _kept(node.orelse, kernels, in_class=in_class)
        elif isinstance(node, ast.With | ast.Try):
            kept += _kept([*node.body, *getattr(node, "orelse", ())], kernels, in_class=in_class)
            continue
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            kept += [node] if in_class else _assigned(node, kernels)
            continue
        elif type(node).__name__ not in _AS_THEY_ARE:
            continue
        kept.append(node)
    return kept


def _assigned(node: ast.Assign | ast.AnnAssign, kernels: frozenset[str]) -> list[ast.stmt]:
    """Keep an assignment; a constant becomes its type, and a kernel nothing."""
    names = list(_bound(node))
    kind = _constant_type(node.value) if isinstance(node, ast.Assign) else ""
    if not kernels.isdisjoint(names):
        kind = "typing.Any"
    elif not kind or any(name.startswith("__") for name in names):
        return [node] if names else []
    return [_declared(name, _parsed(kind)) for name in names if name not in kernels]


def _constant_type(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "str"
    if not isinstance(value, ast.Constant):
        return ""
    return type(value.value).__name__ if isinstance(value.value, _CONSTANTS) else "typing.Any"


def _attributes(node: ast.ClassDef) -> list[ast.stmt]:
    """Declare the attributes that methods give to their first parameter."""
    found: dict[str, ast.expr] = {}
    known: set[str] = set()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.args.args:
            found |= {name: kind for name, kind in _given_attributes(member).items() if name not in found}
        known |= {member.name} if isinstance(member, _NAMED) else set(_bound(member))
    return [_declared(name, kind) for name, kind in found.items() if name not in known]


def _given_attributes(method: ast.FunctionDef) -> dict[str, ast.expr]:
    """Map the attributes that a method gives to its first parameter to their types, as far as they are written."""
    first = method.args.args[0].arg
    types = {argument.arg: argument.annotation for argument in (*method.args.args, *method.args.kwonlyargs)}
    found: dict[str, ast.expr] = {}
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        written = types.get(node.value.id) if isinstance(node.value, ast.Name) else None
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == first:
                kind = node.annotation if isinstance(node, ast.AnnAssign) else written
                found.setdefault(target.attr, kind or _parsed("typing.Any"))
    return found


def _doc(node: ast.Module | _NAMED) -> list[ast.stmt]:
    return node.body[:1] if ast.get_docstring(node) is not None else []


def _nothing() -> ast.stmt:
    return ast.Expr(ast.Constant(...))


def _parsed(kind: str) -> ast.expr:
    return ast.parse(kind, mode="eval").body


def _declared(name: str, kind: ast.expr) -> ast.stmt:
    return ast.AnnAssign(ast.Name(name, ast.Store()), kind, simple=1)


class _Shortened(ast.NodeTransformer):
    """Empties long texts, such as sources of kernels, but no docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        """Keep a docstring."""
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        """Empty a formatted text."""
        return ast.copy_location(ast.Constant(""), node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Empty a long text."""
        if isinstance(node.value, str | bytes) and len(node.value) > _LONGEST_TEXT:
            return ast.copy_location(ast.Constant(node.value[:0]), node)
        return node
