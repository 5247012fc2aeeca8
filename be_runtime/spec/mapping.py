"""Mapping of a C++ signature: whether generated code can call it, and what each of its parameters takes."""

from __future__ import annotations

import re

from be_runtime.errors import SourceSpan, SpecError
from be_runtime.spec.attribute_types import parse_default
from be_runtime.spec.cpp.cpp_params import CppParam, Shape
from be_runtime.spec.cpp.functions import Function
from be_runtime.spec.cpp.lexer import Kind
from be_runtime.spec.cpp.literals import read_literal
from be_runtime.spec.cpp.places import Places
from be_runtime.spec.model import AttrKind, Many, Param, Role

ARRAYS = {
    Shape.INPUT: Param(role=Role.ARG),
    Shape.OUTPUT: Param(role=Role.RET),
    Shape.OPTIONAL: Param(role=Role.ARG, many=Many.OPTIONAL),
    Shape.INPUTS: Param(role=Role.ARG, many=Many.ANY),
    Shape.OUTPUTS: Param(role=Role.RET, many=Many.ANY),
}
KEPT = {Shape.WORKSPACE: Role.SCRATCH, Shape.STATE: Role.STATE}
BY_TYPE = {
    **ARRAYS,
    Shape.STREAM: Param(role=Role.STREAM),
    **{shape: Param(role=role) for shape, role in KEPT.items()},
}
"""What the type of a parameter alone determines."""
KINDS = {
    Shape.SCALAR: (AttrKind.SCALAR, Kind.NUMBER),
    Shape.STRING: (AttrKind.STRING, Kind.STRING),
    Shape.SPAN: (AttrKind.ARRAY, None),
    Shape.ENUM: (AttrKind.ENUM, Kind.WORD),
    Shape.STRUCT: (AttrKind.STRUCT, None),
    Shape.DTYPE: (AttrKind.DTYPE, Kind.WORD),
}
"""The attribute that a parameter takes, and the literal that can be its default."""
_UNSPELT = re.compile(r"[\s(){}]")


def uncallable(function: Function) -> tuple[str, str]:
    """Return the reason generated code can't call `function`, and a hint; empty if it can."""
    if function.owner:
        return f"it is a member of {function.owner}", "write a free function that calls it"
    if "__global__" in function.specifiers:
        return "it is a CUDA kernel (__global__)", "name the host function that launches it"
    if "__device__" in function.specifiers and "__host__" not in function.specifiers:
        return "it is a __device__ function", "name a host function"
    return "", ""


def no_void(function: Function, places: Places) -> SpecError:
    """Make the error for a function that returns something."""
    returns = re.sub(r" ?(::|<) ?| (?=[>*&])", lambda match: match[1] or "", function.returns)
    return SpecError(
        f"{function.name}: it returns {returns!r}, but an entry point returns void: nobody would read the value",
        span=places.span(function.returns_start, function.returns_length),
        hints=("take each result as a BE::Tensor parameter, and raise errors by BE_CHECK or an exception",),
    )


def attribute_of(cpp: CppParam, places: Places) -> Param | None:
    """Return the attribute that a parameter or a field takes; None if it takes none."""
    if cpp.shape not in KINDS:
        return None
    kind, literal_kind = KINDS[cpp.shape]
    fields = tuple(_spelt(field) for member in cpp.members if (field := attribute_of(member, places)) is not None)
    param = Param(role=Role.ATTR, name=cpp.name, dtype=cpp.dtype, kind=kind, choices=cpp.choices, fields=fields)
    literal = read_literal(cpp.default, places)
    if literal is None or literal[0] is not literal_kind:
        return param
    return with_default(param, literal[1].lower() if kind is AttrKind.DTYPE else literal[1]) or param


def _spelt(field: Param) -> Param:
    """Return a field without a default that the arg_spec can't spell: a text with spaces or brackets."""
    return field._replace(default=None) if _UNSPELT.search(str(field.default)) else field


def with_default(param: Param, text: str) -> Param | None:
    """Return an attribute with a default; None if it can't have this one."""
    try:
        return parse_default(text, param)
    except ValueError:
        return None


def is_untyped(param: Param) -> bool:
    """Return whether an attribute was written without a type."""
    return param.role is Role.ATTR and param.kind is AttrKind.SCALAR and param.dtype is None


def at(cpp: CppParam, places: Places) -> SourceSpan:
    """Return the place of a parameter in its source."""
    return places.span(cpp.start, cpp.length)
