"""The text of stubs, which are ``.pyi`` files for entry points and for an author's Python module. Pure."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from be_runtime.call.resolve import CallSignature
from be_runtime.call.signature import call_arguments, describe, render_arguments, result_type, struct_fields
from be_runtime.signature.model import Param
from be_toolchain.terminal import printable

MARK = "# Written by `python -m be_runtime stubs`, which replaces it."
"""First line of every stub. A file without it was not written by this package."""

_IMPORTS = ("be_runtime", "collections.abc", "jax", "jax.typing", "numpy.typing", "typing")
_DECORATOR = """\
_P = typing.ParamSpec("_P")
_R = typing.TypeVar("_R")

def _kernel(function: collections.abc.Callable[_P, _R], /) -> be_runtime.KernelFunction[_P, _R]: ...
"""
_USED = frozenset(
    {"_kernel", "be_runtime", "collections", "complex", "jax", "numpy", "staticmethod", "str", "tuple", "typing"}
)
"""Names in the text of a class, which no function of the class may have."""

_WIDTH = 120


class StubFunction(NamedTuple):
    """A function of a stub.

    Parameters
    ----------
    name : str
    signature : CallSignature
    has_outs : bool
        True if `outs` is among its options.
    """

    name: str
    signature: CallSignature
    has_outs: bool = False


def class_name(text: str) -> str:
    """Return the name of the class for a module.

    Examples
    --------
    >>> class_name("spiking_ops"), class_name("2d-fft")
    ('SpikingOps', '_2dFft')
    """
    name = "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", text))
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"_{name}"


class StubModule(NamedTuple):
    """A module of a stub.

    Parameters
    ----------
    functions : sequence of StubFunction
    base : str
        Name of the public class that the module's class extends.
    hidden : collection of str
        Attributes of every such module; an entry point of the same name hides them.
    kept : collection of str
        Attributes that hide an entry point of the same name.
    """

    functions: Sequence[StubFunction]
    base: str = "LoadedModule"
    hidden: Collection[str] = ()
    kept: Collection[str] = ()


def render_class(name: str, module: StubModule) -> str:
    """Return the text of the class for a module.

    Parameters
    ----------
    name : str
        Name of the class.
    module : StubModule
        A function whose name is not an identifier, or has another use in the class, is only an item.
    """
    taken = {*_USED, *module.kept}
    shown = [each for each in module.functions if _is_name(each.name) and each.name not in taken]
    parts = [_render(each, prefix=name, indent="    ", hides=each.name in module.hidden) for each in shown]
    body = "\n".join(text for _, text in parts) or "    ...\n"
    structs = "".join(structs for structs, _ in parts)
    return f"{structs}\nclass {name}(be_runtime.{module.base}):\n{body}".lstrip("\n")


def render_package(name: str, modules: Mapping[str, StubModule], kernels: Iterable[str]) -> str:
    """Return the text of the classes for a package's kernels, one for each module, and one with all modules.

    Parameters
    ----------
    name : str
        Name of the class with the modules.
    modules : dict of str to StubModule
    kernels : iterable of str
        Names of kernels without host code, whose calls take any arguments.
    """
    classes = {module: f"{name}{class_name(module)}" for module in modules}
    texts = [render_class(classes[each], module) for each, module in modules.items()]
    lines = [f"{each}: {kind}" for each, kind in classes.items() if _is_name(each)]
    lines += [f"{each}: collections.abc.Callable[..., typing.Any]" for each in kernels if _is_name(each)]
    owners: dict[str, list[str]] = {}
    for each, module in modules.items():
        for function in module.functions:
            owners.setdefault(function.name, []).append(each)
    taken = {*modules, *kernels, *_USED}
    unique = [(each, of[0]) for each, of in owners.items() if len(of) == 1 and _is_name(each) and each not in taken]
    lines += [f"{each} = {classes[of]}.{each}" for each, of in unique if each not in modules[of].kept]
    lines += ["def __getitem__(self, name: str, /) -> typing.Any: ..."]
    return "\n".join([*texts, f"class {name}:", *(f"    {line}" for line in lines)]) + "\n"


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def render_function(function: StubFunction) -> str:
    """Return the text of a function among the names of a Python module."""
    structs, text = _render(function, prefix="_", indent="")
    return f"{structs}\n{text}".lstrip("\n")


def _render(function: StubFunction, *, prefix: str, indent: str, hides: bool = False) -> tuple[str, str]:
    """Return the text of the types for a function's attributes, and of its definition."""
    structs: list[str] = []

    def struct(param: Param) -> str:
        name = f"{prefix}{class_name(function.name)}{class_name(param.name)}"
        fields = ", ".join(f'"{field}": {kind}' for field, kind in struct_fields(param, struct).items())
        structs.append(f'{name} = typing.TypedDict("{name}", {{{fields}}})\n')
        return name

    arguments = call_arguments(function.signature, has_outs=function.has_outs, struct=struct)
    head = _wrapped(f"{indent}def {function.name}(", render_arguments(arguments), indent)
    decorators = [f"{indent}@_kernel\n", f"{indent}@staticmethod\n" if indent else ""]
    doc = _docstring(describe(function.signature), indent + "    ")
    text = f"{head} -> {result_type(function.signature)}:\n"
    if hides:
        text = text.replace("\n", "  # type: ignore\n", 1)  # the name overrides an attribute of every module
    return "".join(structs), f"{''.join(decorators)}{text}{doc}"


def _wrapped(start: str, texts: Sequence[str], indent: str) -> str:
    """Return the text of a definition, with all parameters in one line or one in each."""
    line = f"{start}{', '.join(texts)})"
    if len(line) <= _WIDTH:
        return line
    return "".join([f"{start}\n", *(f"{indent}    {text},\n" for text in texts), f"{indent})"])


def _docstring(text: str, indent: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines = [f"{indent}{line}".rstrip() for line in escaped.splitlines()]
    return "\n".join([f'{indent}"""{lines[0].lstrip()}', *lines[1:], f'{indent}"""\n'])


def render_stub(parts: Iterable[str], *, python: str = "") -> str:
    """Return the text of a stub.

    Parameters
    ----------
    parts : iterable of str
        Classes and functions.
    python : str
        Stub of the other names of a Python module, which comes first, since it may begin with a docstring.
    """
    body = "\n".join([_DECORATOR, *parts])
    imports = "".join(f"import {name}\n" for name in _IMPORTS if f"{name}." in python + body)
    return "\n".join(filter(None, [MARK, python, imports, body]))


_LONGEST_TEXT = 200
_CONSTANTS = (bool, bytes, complex, float, int, str)
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_AS_THEY_ARE = ("Import", "ImportFrom", "AugAssign", "TypeAlias")
"""Names of the statements that a stub keeps; Python 3.11 has no node for the last."""


def python_stub(source: str, kernels: Collection[str], names: Collection[str]) -> str:
    r"""Return the text of the stub for a Python module.

    Parameters
    ----------
    source : str
        Python code.
    kernels : collection of str
        Names of kernels and modules of kernels, which the stub omits.
    names : collection of str
        Public names of the imported module. A name that no statement of the stub binds gets the type Any.

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
        tree.body += [_declared(name, "typing.Any") for name in names if name not in bound]
    return ast.unparse(ast.fix_missing_locations(_Shortened().visit(tree))) + "\n"


def imported_names(source: str) -> frozenset[str]:
    """Return the names that the import statements of a module bind."""
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
    """Return the statements of a stub for the statements of a module, a branch or a class."""
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
        if isinstance(node, ast.With | ast.Try):
            kept += _kept([*node.body, *getattr(node, "orelse", ())], kernels, in_class=in_class)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            kept += [node] if in_class else _assigned(node, kernels)
        elif isinstance(node, _NAMED | ast.If) or type(node).__name__ in _AS_THEY_ARE:
            kept.append(node)
    return kept


def _assigned(node: ast.Assign | ast.AnnAssign, kernels: frozenset[str]) -> list[ast.stmt]:
    """Return the statements for an assignment: the type of a constant, none for a kernel, otherwise the assignment."""
    names = list(_bound(node))
    kind = _constant_type(node.value) if isinstance(node, ast.Assign) else ""
    if not kernels.isdisjoint(names):
        kind = "typing.Any"
    elif not kind or any(name.startswith("__") for name in names):
        return [node] if names else []
    return [_declared(name, kind) for name in names if name not in kernels]


def _constant_type(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "str"
    if not isinstance(value, ast.Constant):
        return ""
    return type(value.value).__name__ if isinstance(value.value, _CONSTANTS) else "typing.Any"


def _attributes(node: ast.ClassDef) -> list[ast.stmt]:
    """Declare the attributes that methods give to their first parameter."""
    found: dict[str, ast.expr | str] = {}
    known: set[str] = set()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.args.args:
            found |= {name: kind for name, kind in _given_attributes(member).items() if name not in found}
        known |= {member.name} if isinstance(member, _NAMED) else set(_bound(member))
    return [_declared(name, kind) for name, kind in found.items() if name not in known]


def _given_attributes(method: ast.FunctionDef) -> dict[str, ast.expr | str]:
    """Map the attributes that a method gives to its first parameter to their annotated types, or to Any."""
    first = method.args.args[0].arg
    types = {argument.arg: argument.annotation for argument in (*method.args.args, *method.args.kwonlyargs)}
    found: dict[str, ast.expr | str] = {}
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        written = types.get(node.value.id) if isinstance(node.value, ast.Name) else None
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == first:
                kind = node.annotation if isinstance(node, ast.AnnAssign) else written
                found.setdefault(target.attr, kind or "typing.Any")
    return found


def _doc(node: ast.Module | _NAMED) -> list[ast.stmt]:
    return node.body[:1] if ast.get_docstring(node) is not None else []


def _nothing() -> ast.stmt:
    return ast.Expr(ast.Constant(...))


def _declared(name: str, kind: ast.expr | str) -> ast.stmt:
    annotation = ast.parse(kind, mode="eval").body if isinstance(kind, str) else kind
    return ast.AnnAssign(ast.Name(name, ast.Store()), annotation, simple=1)


class _Shortened(ast.NodeTransformer):
    """Replace long texts, such as sources of kernels, by empty texts, and keep docstrings."""

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
