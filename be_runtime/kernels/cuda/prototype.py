"""Parameters of a ``__global__`` function, read from its source: pointers and scalars. Pure.

A type that a template or a macro hides is unknown, and is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import EntryPointNotFoundError, SpecError
from be_runtime.kernels.cuda.describe import KernelParam
from be_runtime.source_text import SourceText
from be_runtime.spec.cpp.cpp_params import CPP_SCALARS, CppParam, Shape, canonical_type
from be_runtime.spec.cpp.declarations import CppCode, DeclarationReader
from be_runtime.spec.cpp.functions import Function, parse_function
from be_runtime.spec.cpp.lexer import significant
from be_runtime.spec.cpp.outline import outline
from be_runtime.spec.cpp.program import check_size

_EXPRESSION = re.compile(r"\s*((?:::\s*)?(?:\w+\s*::\s*)*)(\w+)\s*(?:<(.*)>)?\s*", re.DOTALL)
_BEFORE_PARENTHESIS = re.compile(r"\b(\w++)\s*+\(")
_LARGEST_SCALAR = 8
"""Bytes that the launcher has for a scalar."""

_DROPPED = frozenset({"const", "volatile", "__restrict__", "__restrict", "struct", "typename"})


class KernelName(NamedTuple):
    """A kernel's name as C++ spells it, split into its parts.

    Parameters
    ----------
    expression : str
        Name as given, such as ``"ops::scale<float, 4>"``.
    base : str
        Last name, ``"scale"``.
    arguments : tuple of str
        Template arguments, ``("float", "4")``.
    namespaces : tuple of str
        Enclosing namespaces, outermost first, ``("ops",)``.
    """

    expression: str
    base: str
    arguments: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def parse_name(text: str) -> KernelName:
    """Split a kernel's name into its parts.

    Raises
    ------
    SpecError
        It is not a name.

    Examples
    --------
    >>> parse_name("ops::scale<float, 4>")
    KernelName(expression='ops::scale<float, 4>', base='scale', arguments=('float', '4'), namespaces=('ops',))
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise SpecError(f"{text!r} is not a kernel name", hints=("write it as in C++: 'f', 'ns::f' or 'f<float, 4>'",))
    arguments = _split(match[3]) if match[3] is not None else ()
    return KernelName(text.strip(), match[2], arguments, tuple(match[1].replace("::", " ").split()))


def _split(text: str) -> tuple[str, ...]:
    """Split template arguments at the commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(part.strip() for part in parts)


def read_prototype(source: str, name: KernelName) -> tuple[KernelParam, ...]:
    """Read the parameters of a kernel from a source.

    Raises
    ------
    EntryPointNotFoundError
        The source has no such kernel.
    SpecError
        A parameter has a type that can't be passed, or several kernels match the name.
    """
    fitting = _choose(_kernels(source, name), name)
    read = [(function, _params(function, name)) for function in fitting]
    spelt = {tuple(param.name for param in params) for function, params in read if function.has_body}
    if len({_types(params) for _, params in read}) > 1 or len(spelt) > 1:
        shown = dict.fromkeys(
            f"{function.call_name}({', '.join(f'{param.type} {param.name}' for param in params)})"
            for function, params in read
        )
        raise SpecError(
            f"{name.expression} may be any of: {', '.join(shown)}",
            hints=(
                "write the namespace as well, as in name='ops::scale'"
                if len({function.call_name for function in fitting}) > 1
                else "give each of them a name of its own: only the compiler knows what #if and overloads choose",
            ),
        )
    return read[0][1]


def _kernels(source: str, name: KernelName) -> list[Function]:
    """Find the kernels with this last name, definitions before declarations."""
    check_size([SourceText("the source", source)])
    code = outline(source).code
    reader = DeclarationReader(lambda _header, _offset, _words: None)
    reader.read(CppCode(code, 0))
    found = [function for header in reader.found if (function := parse_function(header, name.base)) is not None]
    kernels = sorted((f for f in found if "__global__" in f.specifiers), key=lambda f: not f.has_body)
    if kernels:
        return kernels
    heads = [re.split("[;{}]", text, maxsplit=1)[0] for text in code.split("__global__")[1:]]
    called = [[name for name in _BEFORE_PARENTHESIS.findall(head) if not name.startswith("__")] for head in heads]
    known = sorted({names[0] for names in called if names})
    problem = f"{name.base} is not a __global__ function" if found else f"the source has no function {name.base}"
    raise EntryPointNotFoundError(
        problem, hints=(f"its kernels are: {', '.join(known)}",) if known else ("a kernel begins with __global__ void",)
    )


def _choose(kernels: Sequence[Function], name: KernelName) -> Sequence[Function]:
    """Select the kernels in the namespaces of the name, as far as the source shows them.

    An inline namespace or a ``using`` allows namespaces to be omitted. An alias or a macro gives them other names, and
    then any of the kernels may be meant.
    """
    fitting = (
        [kernel for kernel in kernels if _namespaces(kernel) == name.namespaces]
        or [kernel for kernel in kernels if is_within(name.namespaces, _namespaces(kernel))]
        or kernels
    )
    return [kernel for kernel in fitting if (kernel.template is not None) == bool(name.arguments)] or fitting


def _namespaces(function: Function) -> tuple[str, ...]:
    return tuple(function.call_name.split("::")[1:-1])


def is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether all names of `part` are in `whole`, in the same order.

    Examples
    --------
    >>> is_within(["lib"], ["lib", "v2"]), is_within(["v1"], ["lib", "v2"])
    (True, False)
    """
    rest = iter(whole)
    return all(name in rest for name in part)


def _types(params: Sequence[KernelParam]) -> tuple[object, ...]:
    """Return a signature of the parameters that ignores their names and spelling."""
    return tuple((param.is_pointer, param.is_const, param.dtype or param.type.replace(" ", "")) for param in params)


def _params(function: Function, name: KernelName) -> tuple[KernelParam, ...]:
    types = _template_types(function, name)
    return tuple(_param(param, types, name) for param in function.params)


def _template_types(function: Function, name: KernelName) -> dict[str, str]:
    """Map each type parameter of a template to its argument."""
    if function.template is None:
        if name.arguments:
            raise SpecError(f"{name.base} is not a template, so it takes no arguments {', '.join(name.arguments)}")
        return {}
    names = [
        part.split("=")[0].split()[-1]
        for part in _split(" ".join(function.template))
        if part.split()[:1] in (["typename"], ["class"])
    ]
    if not name.arguments:
        raise SpecError(
            f"{name.base} is a template: name an instance, such as name='{name.base}<float>'",
        )
    kinds = [part.split()[:1] in (["typename"], ["class"]) for part in _split(" ".join(function.template))]
    values = [argument for argument, is_type in zip(name.arguments, kinds, strict=False) if is_type]
    return dict(zip(names, values, strict=False))


def _param(param: CppParam, types: dict[str, str], name: KernelName) -> KernelParam:
    """Read one parameter, with the template's types substituted."""
    words = [token.text for token in significant(param.type)]
    words = [part for word in words for part in (_words_of(types[word]) if word in types else [word])]
    pointers = words.count("*")
    plain = [word for word in words if word not in _DROPPED and word != "*"]
    text = canonical_type(plain)
    dtype = BY_NAME[CPP_SCALARS[text]] if text in CPP_SCALARS else None
    if pointers > 1 or param.shape in (Shape.REFERENCE, Shape.RVALUE, Shape.PACK, Shape.ARRAY):
        raise SpecError(
            f"{name.base}: the parameter {param.type} {param.name} can't be passed",
            hints=("a kernel takes pointers to elements and scalars",),
        )
    if pointers:
        star = words.index("*")
        return KernelParam(param.name, param.type, True, "const" in words[:star], dtype)
    if dtype is None or dtype.is_narrow or dtype.is_for_arrays_only or dtype.size_bytes > _LARGEST_SCALAR:
        raise SpecError(
            f"{name.base}: the scalar {param.type} {param.name} can't be passed",
            hints=(
                "scalars are bool, integers of 8 to 64 bits, float, double and complex<float>; pass others as arrays",
            ),
        )
    return KernelParam(param.name, param.type, False, True, dtype)


def _words_of(text: str) -> Sequence[str]:
    return [token.text for token in significant(text)]
