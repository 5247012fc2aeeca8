"""Contradictions of a spec and a C++ signature: what is certain is an error before anything is compiled."""

from __future__ import annotations

from collections import Counter

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import SpecError
from be_runtime.spec.cpp.cpp_params import TENSORS, CppParam, Shape
from be_runtime.spec.cpp.functions import Function, returns_value
from be_runtime.spec.cpp.places import Places
from be_runtime.spec.grammar import Locate, render_spec
from be_runtime.spec.mapping import ARRAYS, BY_TYPE, KEPT, KINDS, at, attribute_of, is_untyped, no_void, uncallable
from be_runtime.spec.model import AttrKind, Param, Role

_TENSOR_ROLES = frozenset({Role.ARG, Role.RET})
_HANDLES = frozenset({"int64", "uint64"})


def contradiction(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> SpecError | None:
    """Return the error if `params` can't be the spec of `function`; None if it can, or if that is uncertain."""
    name_span = places.span(function.start, len(function.name))
    reason, hint = uncallable(function)
    if reason:
        return SpecError(f"{function.name}: {reason}", span=name_span, hints=(hint,))
    if returns_value(function):
        return no_void(function, places)
    error = _wrong_count(params, function, locate, places)
    if error is not None:
        return error
    names = Counter(cpp.name for cpp in function.params)
    for index, (param, cpp) in enumerate(zip(params, function.params, strict=False)):
        message = _mismatch(param, cpp, is_others=names[param.name] > (param.name == cpp.name))
        if message:
            hints = (*_expected(cpp, index, places), *_more_advice(params, param, function, cpp))
            return SpecError(f"{function.name}: {message}", span=at(cpp, places), hints=hints)
    known = all(cpp.shape is not Shape.UNKNOWN and cpp.shape is not Shape.PACK for cpp in function.params)
    if function.template and "=" not in function.template and known:
        return SpecError(
            f"{function.name}: it is a template, and no parameter tells the compiler its arguments",
            span=name_span,
            hints=("write a function that calls the instance you need",),
        )
    return None


def _wrong_count(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> SpecError | None:
    """Make the error for too few or too many tokens; None if their number fits."""
    count, most, least = len(params), len(function.params), function.required
    if any(cpp.shape is Shape.PACK for cpp in function.params) or least <= count <= most:
        return None
    expected = _count(most, "parameter") if least == most else f"{least} to {most} parameters"
    span = (
        at(function.params[count], places)
        if count < most
        else locate(most) or places.span(function.start, len(function.name))
    )
    return SpecError(
        f"{function.name}: the arg_spec has {_count(count, 'token')} ({' '.join(render_spec(params))}) "
        f"but the function has {expected}",
        span=span,
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _mismatch(param: Param, cpp: CppParam, *, is_others: bool) -> str:
    """Describe how a token contradicts the parameter at its position; empty if it does not."""
    (token,) = render_spec([param])
    which = f"parameter {cpp.name!r}" if cpp.name else "a parameter"
    if not _fits(param, cpp):
        return f"the token {token!r} is at the position of {which}, which is {cpp.shape.value} ({cpp.type!r})"
    if param.role is Role.RET and _is_input(cpp):
        return f"the token {token!r} makes {which} a result, but it is {cpp.shape.value} ({cpp.type!r}), an input"
    if param.role is Role.ATTR and is_others:
        return f"the token {token!r} is at the position of {which}; tokens follow the order of the C++ call"
    problem = _wrong_type(param, cpp)
    return f"the token {token!r} can't be passed to {which}: {problem}" if problem else ""


def _wrong_type(param: Param, cpp: CppParam) -> str:
    """Describe how an attribute's type contradicts that of its parameter or field; empty if it does not."""
    known = cpp.dtype if cpp.shape is not Shape.UNKNOWN else None
    if param.dtype is not None and known is not None:
        allows = _reads if param.kind is AttrKind.ARRAY else _converts
        if not allows(param.dtype, known):
            return f"{cpp.type!r} does not hold every {param.dtype.name}"
    unknown = [choice for choice in param.choices if cpp.choices and choice not in cpp.choices]
    members = {member.name: member for member in cpp.members}
    unknown += [field.name for field in param.fields if members and field.name not in members]
    if unknown:
        return f"{cpp.type!r} has no {unknown[0]!r}, but {', '.join(cpp.choices or members)}"
    for field in param.fields:
        member = members.get(field.name)
        if member is not None and not _fits(field, member):
            return f"its {field.name!r} is {member.shape.value} ({member.type!r})"
        problem = _wrong_type(field, member) if member is not None else ""
        if problem:
            return f"{field.name!r}: {problem}"
    return ""


def _is_input(cpp: CppParam) -> bool:
    return cpp.shape in ARRAYS and ARRAYS[cpp.shape].role is Role.ARG


def _fits(param: Param, cpp: CppParam) -> bool:
    """Return whether a role may fit a parameter."""
    if cpp.shape is Shape.UNKNOWN or cpp.shape is Shape.PACK:
        return True
    if param.role in _TENSOR_ROLES or cpp.shape in TENSORS:
        return param.role in _TENSOR_ROLES and cpp.shape in TENSORS and param.many is ARRAYS[cpp.shape].many
    if param.role in KEPT.values() or cpp.shape in KEPT:
        return KEPT.get(cpp.shape) is param.role
    if param.role is Role.STREAM:  # A handle: 64 bits wide, or a pointer.
        return cpp.dtype is None or cpp.dtype.name in _HANDLES
    if param.role is Role.ATTR and not is_untyped(param) and cpp.shape in KINDS:
        return param.kind is KINDS[cpp.shape][0]
    return cpp.shape not in (Shape.POINTER, Shape.ARRAY, Shape.STREAM)


def _reads(given: DType, taken: DType) -> bool:
    """Return whether an array of one type may be read as another: nothing converts its elements."""
    return taken is given or (given.is_narrow and taken is given.attr_type)


def _converts(given: DType, taken: DType) -> bool:
    """Return whether C++ converts every value without losing its meaning; narrow floats may be passed as raw bits.

    An integer may become a float, whose values mean the same as long as they are small.
    """
    if given.is_narrow:
        return taken in (given, given.attr_type)
    if given.kind == "complex":
        return taken.kind == "complex" and given.size_bytes <= taken.size_bytes
    if given.kind == "float":
        return given.size_bytes <= _real_bytes(taken)
    bits, takes = _value_bits(given), _value_bits(taken)
    return not takes or (abs(bits) <= abs(takes) and (bits > 0 or takes < 0))


def _real_bytes(dtype: DType) -> int:
    """Return the size of a float, or of a complex number's parts; 0 for any other type."""
    if dtype.kind == "complex":
        return dtype.size_bytes // 2
    return dtype.size_bytes if dtype.kind == "float" else 0


def _value_bits(dtype: DType) -> int:
    """Return the bits of an integer's or a bool's magnitude, negative for a signed type; 0 for any other type."""
    bits = 8 * dtype.size_bytes
    return {"bool": 1, "uint": bits, "int": 1 - bits}.get(dtype.kind, 0)


def _expected(cpp: CppParam, index: int, places: Places) -> tuple[str, ...]:
    """Make a hint with the token that fits a parameter."""
    fitting = BY_TYPE.get(cpp.shape)
    if cpp.shape is Shape.SCALAR and cpp.name == "stream" and cpp.dtype is BY_NAME["int64"]:
        fitting = Param(role=Role.STREAM)
    elif cpp.shape in KINDS:
        fitting = attribute_of(cpp._replace(name=cpp.name or "NAME", default=()), places)
    return (f"token {index + 1} should be '{render_spec([fitting])[0]}'",) if fitting else ()


def _more_advice(params: tuple[Param, ...], param: Param, function: Function, cpp: CppParam) -> tuple[str, ...]:
    """Return further hints for a token that does not fit a parameter."""
    if param.role is Role.RET and _is_input(cpp):
        swapped = any(
            other.role is Role.ARG and its.shape is Shape.OUTPUT
            for other, its in zip(params, function.params, strict=False)
        )
        order = ("an 'arg' is at the position of a mutable BE::Tensor: the order may be swapped",) if swapped else ()
        return ("a result must not be const: take it as a BE::Tensor", *order)
    if param.role is Role.ATTR and param.dtype is not None and cpp.dtype is not None and not param.dtype.is_narrow:
        return (f"or make the parameter a type that holds every {param.dtype.name}",)
    return ()
