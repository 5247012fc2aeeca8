"""Comparison of a spec with a C++ signature: inference of a missing spec, certain contradictions of a given one."""

from __future__ import annotations

from be_runtime.dtypes import DType
from be_runtime.errors import SourceSpan, SpecError
from be_runtime.spec.cpp.cpp_params import TENSORS, CppParam, Shape
from be_runtime.spec.cpp.functions import Function, returns_void
from be_runtime.spec.cpp.places import Places
from be_runtime.spec.grammar import Locate, render_spec
from be_runtime.spec.model import Param, Role

_TENSOR_ROLES = frozenset({Role.ARG, Role.RET})
_HANDLES = frozenset({"int64", "uint64"})
_BY_SHAPE = {
    Shape.INPUT: Role.ARG,
    Shape.OUTPUT: Role.RET,
    Shape.STREAM: Role.STREAM,
    Shape.WORKSPACE: Role.SCRATCH,
    Shape.STATE: Role.STATE,
}
"""The roles of parameters whose type alone determines them."""
_KEPT = {Shape.WORKSPACE: Role.SCRATCH, Shape.STATE: Role.STATE}


def infer(function: Function, places: Places) -> tuple[Param, ...]:
    """Infer the role of each parameter of `function`.

    Raises
    ------
    SpecError
        The signature does not determine a role; the error has the place of the parameter.
    """
    check_kind(function, places)
    params = tuple(_infer_param(function, param, places) for param in function.params)
    for role, message in ((Role.STREAM, "there is one stream"), (Role.STATE, "an entry point has one object of state")):
        found = [cpp for cpp, param in zip(function.params, params, strict=True) if param.role is role]
        if len(found) > 1:
            text = f"{function.name}: a second {role.value} parameter; {message}"
            raise SpecError(text, span=at(found[1], places))
    if not any(param.role is Role.RET for param in params):
        raise SpecError(
            f"{function.name}: no parameter is an output",
            span=places.span(function.start, len(function.name)),
            hints=("an output is a BE::Tensor that is not const",),
        )
    return params


def check_kind(function: Function, places: Places) -> None:
    """Refuse a function that generated code certainly can't call, by its signature."""
    reason, hint = _unusable(function)
    if reason:
        raise SpecError(
            f"{function.name}: {reason}",
            span=places.span(function.start, len(function.name)),
            hints=(hint,) if hint else (),
        )


def _unusable(function: Function) -> tuple[str, str]:
    """Return the reason inference can't work for `function`, and a hint; empty if it can."""
    unusable = _uncallable(function)
    if unusable[0]:
        return unusable
    if function.template is not None:
        return "it is a template", "write a function that calls the instance you need"
    if not returns_void(function):
        return f"it returns {function.returns!r}; an entry point returns void", "write results into a BE::Tensor"
    return "", ""


def _uncallable(function: Function) -> tuple[str, str]:
    """Return the reason generated code can't call `function`, and a hint; empty if it can."""
    if function.owner:
        return f"it is a member of {function.owner}", "write a free function that calls it"
    if "__global__" in function.specifiers:
        return "it is a CUDA kernel (__global__)", "name the host function that launches it"
    if "__device__" in function.specifiers and "__host__" not in function.specifiers:
        return "it is a __device__ function", "name a host function"
    return "", ""


def _infer_param(function: Function, cpp: CppParam, places: Places) -> Param:
    """Infer the role of one parameter."""
    if cpp.shape in _BY_SHAPE:
        return Param(role=_BY_SHAPE[cpp.shape], name=cpp.name)
    if cpp.shape is not Shape.SCALAR or cpp.dtype is None:
        raise _unmapped(function.name, cpp, places)
    if not cpp.name:
        raise SpecError(
            f"{function.name}: a parameter of type {cpp.type!r} has no name, and an attribute needs one",
            span=at(cpp, places),
        )
    if cpp.name == "stream":
        if cpp.dtype.name != "int64":
            raise SpecError(
                f"{function.name}: parameter 'stream' has type {cpp.type!r}; a stream is an int64_t or a cudaStream_t",
                span=at(cpp, places),
                hints=("if it is an attribute, write the tokens: attr.stream",),
            )
        return Param(role=Role.STREAM, name=cpp.name)
    return Param(role=Role.ATTR, name=cpp.name, dtype=cpp.dtype)


def _unmapped(name: str, cpp: CppParam, places: Places) -> SpecError:
    """Make the error for a parameter without a role."""
    which = f"parameter {cpp.name!r}" if cpp.name else f"the parameter {cpp.type!r}"
    if cpp.shape is Shape.UNKNOWN:
        message = f"{name}: {which} has type {cpp.type!r}, which has no mapping"
    else:
        message = f"{name}: {which} is {cpp.shape.value} ({cpp.type!r})"
    return SpecError(message, span=at(cpp, places), hints=_advice(cpp))


def _advice(cpp: CppParam) -> tuple[str, ...]:
    """Suggest a replacement for a parameter."""
    if cpp.shape in (Shape.POINTER, Shape.ARRAY):
        return ("take a BE::Tensor and use its data_ptr()",)
    if cpp.shape in (Shape.REFERENCE, Shape.RVALUE):
        return ("take an input by value or const reference, and an output as a BE::Tensor",)
    if cpp.shape is Shape.PACK:
        return ("list every parameter",)
    if cpp.type.split("::")[-1].replace("const", "").strip(" &") == "Tensor":
        return ("write BE::Tensor, or `using namespace BE;`",)
    return ("write the tokens, such as attr.NAME:TYPE, if the type converts from a scalar",)


def at(cpp: CppParam, places: Places) -> SourceSpan:
    """Return the place of a parameter in its source."""
    return places.span(cpp.start, cpp.length)


def complete(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> tuple[Param, ...]:
    """Complete `params` with the names and types in the signature.

    Raises
    ------
    SpecError
        An attribute without a type is not a parameter, or the type of its parameter has no mapping.
    """
    by_name = {cpp.name: cpp for cpp in function.params if cpp.name}
    out: list[Param] = []
    for index, param in enumerate(params):
        if param.role is not Role.ATTR:
            cpp_name = function.params[index].name if index < len(function.params) else ""
            out.append(param._replace(name=cpp_name) if cpp_name else param)
        elif param.dtype is not None:
            out.append(param)
        else:
            out.append(param._replace(dtype=_dtype_of(param, by_name, index, function, locate, places)))
    return tuple(out)


def _dtype_of(
    param: Param, by_name: dict[str, CppParam], index: int, function: Function, locate: Locate, places: Places
) -> DType:
    """Find the type of an attribute that was written without one."""
    cpp = by_name.get(param.name)
    if cpp is None:
        from difflib import get_close_matches

        close = get_close_matches(param.name, by_name, n=1)
        raise SpecError(
            f"{function.name}: 'attr.{param.name}' names no parameter of the function",
            span=locate(index) or places.span(function.start, len(function.name)),
            hints=(
                *(f"did you mean 'attr.{name}'?" for name in close),
                f"write the type to use another name: attr.{param.name}:TYPE",
            ),
        )
    if cpp.shape is not Shape.SCALAR or cpp.dtype is None:
        error = _unmapped(function.name, cpp, places)
        raise SpecError(
            error.message if cpp.shape not in TENSORS else f"{function.name}: 'attr.{param.name}' is {cpp.shape.value}",
            span=error.span,
            hints=(f"write the type: attr.{param.name}:TYPE",) if cpp.shape is Shape.UNKNOWN else error.hints,
        )
    return cpp.dtype


def contradiction(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> SpecError | None:
    """Return the error if `params` can't be the spec of `function`; None if it can, or if that is uncertain."""
    name_span = places.span(function.start, len(function.name))
    reason, hint = _uncallable(function)
    if reason:
        return SpecError(f"{function.name}: {reason}", span=name_span, hints=(hint,))
    error = _wrong_count(params, function, locate, places)
    if error is not None:
        return error
    for index, (param, cpp) in enumerate(zip(params, function.params, strict=False)):
        message = _mismatch(param, cpp, {other.name for other in function.params if other is not cpp})
        if message:
            hints = (*_expected(cpp, index), *_more_advice(params, param, function, cpp))
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


def _mismatch(param: Param, cpp: CppParam, other_names: set[str]) -> str:
    """Describe how a token contradicts the parameter at its position; empty if it does not."""
    (token,) = render_spec([param])
    which = f"parameter {cpp.name!r}" if cpp.name else "a parameter"
    if not _fits(param, cpp):
        return f"the token {token!r} is at the position of {which}, which is {cpp.shape.value} ({cpp.type!r})"
    if param.role is Role.RET and cpp.shape is Shape.INPUT:
        return f"the token {token!r} makes {which} a result, but it is {cpp.shape.value} ({cpp.type!r}), an input"
    if param.role is Role.ATTR and param.name in other_names:
        return f"the token {token!r} is at the position of {which}; tokens follow the order of the C++ call"
    if param.dtype is not None and cpp.dtype is not None and not _converts(param.dtype, cpp.dtype):
        return f"the token {token!r} can't be passed to {which}: {cpp.type!r} does not hold every {param.dtype.name}"
    return ""


def _more_advice(params: tuple[Param, ...], param: Param, function: Function, cpp: CppParam) -> tuple[str, ...]:
    """Return further hints for a token that does not fit a parameter."""
    if param.role is Role.RET and cpp.shape is Shape.INPUT:
        swapped = any(
            other.role is Role.ARG and its.shape is Shape.OUTPUT
            for other, its in zip(params, function.params, strict=False)
        )
        order = ("an 'arg' is at the position of a mutable BE::Tensor: the order may be swapped",) if swapped else ()
        return ("a result must not be const: take it as a BE::Tensor", *order)
    if param.role is Role.ATTR and param.dtype is not None and cpp.dtype is not None and not param.dtype.is_narrow:
        return (f"or make the parameter a type that holds every {param.dtype.name}",)
    return ()


def _fits(param: Param, cpp: CppParam) -> bool:
    """Return whether a role may fit a parameter."""
    if cpp.shape is Shape.UNKNOWN or cpp.shape is Shape.PACK:
        return True
    if param.role in _TENSOR_ROLES or cpp.shape in TENSORS:
        return param.role in _TENSOR_ROLES and cpp.shape in TENSORS
    if param.role in _KEPT.values() or cpp.shape in _KEPT:
        return _KEPT.get(cpp.shape) is param.role
    if param.role is Role.STREAM:  # A handle: 64 bits wide, or a pointer.
        return cpp.dtype is None or cpp.dtype.name in _HANDLES
    return cpp.shape not in (Shape.POINTER, Shape.ARRAY, Shape.STREAM)


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


def _expected(cpp: CppParam, index: int) -> tuple[str, ...]:
    """Make a hint with the token that fits a parameter."""
    fitting = _BY_SHAPE[cpp.shape].value if cpp.shape in _BY_SHAPE else ""
    if cpp.shape is Shape.SCALAR and cpp.dtype is not None:
        is_stream = cpp.name == "stream" and cpp.dtype.name == "int64"
        fitting = "stream" if is_stream else f"attr.{cpp.name or 'NAME'}:{cpp.dtype.name}"
    return (f"token {index + 1} should be '{fitting}'",) if fitting else ()
