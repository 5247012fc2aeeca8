"""The text of a stub: a class for each module of kernels, in which each entry point is a function. Pure."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from be_runtime.call.python_signature import (
    call_arguments,
    describe,
    render_arguments,
    result_type,
    struct_fields,
)
from be_runtime.call.resolve import CallSignature
from be_runtime.spec.model import Param
from be_toolchain.terminal import printable

MARK = "# Written by `python -m be_runtime stubs`, which replaces it."
"""First line of every stub; a file without it is somebody else's."""

_IMPORTS = ("be_runtime", "collections.abc", "jax", "jax.typing", "numpy.typing", "typing")
_DECORATOR = """\
_P = typing.ParamSpec("_P")
_R = typing.TypeVar("_R")

def _kernel(function: collections.abc.Callable[_P, _R], /) -> be_runtime.KernelFunction[_P, _R]: ...
"""
_USED = frozenset(
    {"_kernel", "be_runtime", "collections", "complex", "jax", "numpy", "staticmethod", "str", "tuple", "typing"}
)
"""Names that the text of a class uses, and that no function in it may have."""

_WIDTH = 120


class StubFunction(NamedTuple):
    """A function of a stub.

    Parameters
    ----------
    name : str
    signature : CallSignature
    has_outs : bool
        True if it has `outs` among its options.
    """

    name: str
    signature: CallSignature
    has_outs: bool = False


def class_name(text: str) -> str:
    """Make a class's name of a module's.

    Examples
    --------
    >>> class_name("spiking_ops"), class_name("2d-fft")
    ('SpikingOps', '_2dFft')
    """
    name = "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", text))
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"_{name}"


def render_class(name: str, functions: Iterable[StubFunction], *, hidden: Collection[str]) -> str:
    """Write the class of a module.

    Parameters
    ----------
    name : str
        Name of the class.
    functions : iterable of StubFunction
    hidden : collection of str
        Names of each module's own attributes, which an entry point of that name hides. One whose name is no identifier,
        or stands for something else in the class, is only an item.
    """
    shown = [each for each in functions if _is_name(each.name) and each.name not in _USED]
    parts = [_render(each, prefix=name, indent="    ", hides=each.name in hidden) for each in shown]
    body = "\n".join(text for _, text in parts) or "    ...\n"
    structs = "".join(structs for structs, _ in parts)
    return f"{structs}\nclass {name}(be_runtime.LoadedModule):\n{body}".lstrip("\n")


def render_package(
    name: str, modules: Mapping[str, Sequence[StubFunction]], kernels: Iterable[str], *, hidden: Collection[str]
) -> str:
    """Write the classes of a package's kernels: one for each module, and one that has the modules.

    Parameters
    ----------
    name : str
        Name of the class that has the modules.
    modules : dict of str to sequence of StubFunction
    kernels : iterable of str
        Names of kernels without host code, which can be called with anything.
    hidden : collection of str
        See `render_class`.
    """
    classes = {module: f"{name}{class_name(module)}" for module in modules}
    texts = [render_class(classes[module], functions, hidden=hidden) for module, functions in modules.items()]
    lines = [f"{each}: {kind}" for each, kind in classes.items() if _is_name(each)]
    lines += [f"{each}: collections.abc.Callable[..., typing.Any]" for each in kernels if _is_name(each)]
    owners: dict[str, list[str]] = {}
    for module, functions in modules.items():
        for function in functions:
            owners.setdefault(function.name, []).append(module)
    taken = {*modules, *kernels, *_USED}
    unique = [(each, of[0]) for each, of in owners.items() if len(of) == 1 and _is_name(each) and each not in taken]
    lines += [f"{each} = {classes[module]}.{each}" for each, module in unique]
    lines += ["def __getitem__(self, name: str, /) -> typing.Any: ..."]
    return "\n".join([*texts, f"class {name}:", *(f"    {line}" for line in lines)]) + "\n"


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def render_function(function: StubFunction) -> str:
    """Write a function that a Python module has among its names."""
    structs, text = _render(function, prefix="_", indent="")
    return f"{structs}\n{text}".lstrip("\n")


def _render(function: StubFunction, *, prefix: str, indent: str, hides: bool = False) -> tuple[str, str]:
    """Write the types of attributes that a function needs, and its definition."""
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
        text = text.replace("\n", "  # type: ignore\n", 1)  # it overrides what each module has
    return "".join(structs), f"{''.join(decorators)}{text}{doc}"


def _wrapped(start: str, texts: Sequence[str], indent: str) -> str:
    """Write parameters in one line, or each in its own."""
    line = f"{start}{', '.join(texts)})"
    if len(line) <= _WIDTH:
        return line
    return "".join([f"{start}\n", *(f"{indent}    {text},\n" for text in texts), f"{indent})"])


def _docstring(text: str, indent: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines = [f"{indent}{line}".rstrip() for line in escaped.splitlines()]
    return "\n".join([f'{indent}"""{lines[0].lstrip()}', *lines[1:], f'{indent}"""\n'])


def render_stub(parts: Iterable[str], *, python: str = "") -> str:
    """Write a stub.

    Parameters
    ----------
    parts : iterable of str
        Classes and functions.
    python : str
        Stub of the other names of a Python module; it comes first, since it may begin with a docstring.
    """
    body = "\n".join([_DECORATOR, *parts])
    imports = "".join(f"import {name}\n" for name in _IMPORTS if f"{name}." in python + body)
    return "\n".join(filter(None, [MARK, python, imports, body]))
