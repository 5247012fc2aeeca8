"""Inference of a spec from a C++ signature: the whole of it, or what an author left out."""

from __future__ import annotations

import re
from collections import Counter

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import SourceSpan, SpecError
from be_runtime.signature.attribute_types import parse_default, render_default
from be_runtime.signature.cpp.functions import Function, returns_value, returns_void
from be_runtime.signature.cpp.lexer import Kind, Places, read_literal
from be_runtime.signature.cpp.params import TENSORS, CppParam, Shape
from be_runtime.signature.grammar import RESERVED, Locate, render_spec
from be_runtime.signature.model import AttrKind, Many, Param, Role

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


def infer(function: Function, places: Places) -> tuple[Param, ...]:
    """Infer the role of each parameter of `function`.

    Raises
    ------
    SpecError
        The signature does not determine a role; the error has the place of the parameter.
    """
    _check_kind(function, places)
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
    arrays = [(param.role, param.many) for param in params if param.many is Many.ANY]
    for cpp, param in zip(function.params, params, strict=True):
        if param.many is Many.ANY and arrays.count((param.role, param.many)) > 1:
            what = f"{cpp.shape.value}, and so is another; one takes all arrays that are left"
            raise SpecError(f"{function.name}: parameter {cpp.name!r} is {what}", span=at(cpp, places))
    return params


def _check_kind(function: Function, places: Places) -> None:
    """Refuse a function that generated code certainly can't call, by its signature."""
    reason, hint = _unusable(function)
    if reason:
        raise SpecError(
            f"{function.name}: {reason}",
            span=places.span(function.start, len(function.name)),
            hints=(hint,) if hint else (),
        )
    if not returns_void(function):
        raise no_void(function, places)


def _unusable(function: Function) -> tuple[str, str]:
    """Return the reason inference can't work for `function`, and a hint; empty if it can."""
    unusable = uncallable(function)
    if unusable[0]:
        return unusable
    if function.template is not None:
        return "it is a template", "write a function that calls the instance you need"
    return "", ""


def _infer_param(function: Function, cpp: CppParam, places: Places) -> Param:
    """Infer the role of one parameter."""
    known = BY_TYPE.get(cpp.shape)
    if known is not None:
        return known._replace(name=cpp.name)
    attribute = attribute_of(cpp, places)
    if attribute is None:
        raise _unmapped(function.name, cpp, places)
    if not cpp.name:
        raise SpecError(
            f"{function.name}: a parameter of type {cpp.type!r} has no name, and an attribute needs one",
            span=at(cpp, places),
        )
    if cpp.name in RESERVED:
        raise SpecError(
            f"{function.name}: an attribute can't be called {cpp.name}, {RESERVED[cpp.name]}", span=at(cpp, places)
        )
    if cpp.name == "stream" and cpp.shape is Shape.SCALAR:
        if cpp.dtype is None or cpp.dtype.name != "int64":
            raise SpecError(
                f"{function.name}: parameter 'stream' has type {cpp.type!r}; a stream is an int64_t or a cudaStream_t",
                span=at(cpp, places),
                hints=("if it is an attribute, write the tokens: attr.stream",),
            )
        return Param(role=Role.STREAM, name=cpp.name)
    return attribute


def complete(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> tuple[Param, ...]:
    """Complete `params` with the names and types in the signature.

    Raises
    ------
    SpecError
        An attribute without a type is not a parameter, or the type of its parameter has no mapping.
    """
    by_name = {cpp.name: cpp for cpp in function.params if cpp.name}
    out: list[Param] = []
    for index, given in enumerate(params):
        param = given
        if param.role is not Role.ATTR:
            cpp_name = function.params[index].name if index < len(function.params) else ""
            out.append(param._replace(name=cpp_name) if cpp_name else param)
        elif is_untyped(param):
            out.append(_typed(param, by_name, index, function, locate, places))
        else:
            cpp = by_name.get(param.name)
            declared = cpp and attribute_of(cpp, places)
            if declared and declared.default is not None and param.default is None:
                param = with_default(param, render_default(declared)[1:]) or param
            out.append(param)
    return tuple(out)


def _typed(
    param: Param, by_name: dict[str, CppParam], index: int, function: Function, locate: Locate, places: Places
) -> Param:
    """Give an attribute that was written without a type that of the parameter of its name."""
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
    declared = attribute_of(cpp, places)
    if declared is None:
        error = _unmapped(function.name, cpp, places)
        raise SpecError(
            error.message if cpp.shape not in TENSORS else f"{function.name}: 'attr.{param.name}' is {cpp.shape.value}",
            span=error.span,
            hints=(f"write the type: attr.{param.name}:TYPE",)
            if cpp.shape is Shape.UNKNOWN and cpp.dtype is None
            else error.hints,
        )
    if param.default is None:
        return declared
    text = render_default(param)[1:]
    typed = with_default(declared, text)
    if typed is None:
        raise SpecError(
            f"{function.name}: {text!r} can't be the default of 'attr.{param.name}', which is {cpp.shape.value} "
            f"({cpp.type!r})",
            span=locate(index) or at(cpp, places),
        )
    return typed


def _unmapped(name: str, cpp: CppParam, places: Places) -> SpecError:
    """Make the error for a parameter without a role."""
    which = f"parameter {cpp.name!r}" if cpp.name else f"the parameter {cpp.type!r}"
    if cpp.shape is Shape.UNKNOWN and cpp.dtype is not None:
        message = f"{name}: {which} is {cpp.dtype.name} ({cpp.type!r}), and XLA has no attributes of it"
    elif cpp.shape is Shape.UNKNOWN:
        message = f"{name}: {which} has type {cpp.type!r}, which has no mapping"
    else:
        message = f"{name}: {which} is {cpp.shape.value} ({cpp.type!r})"
    return SpecError(message, span=at(cpp, places), hints=_advice(cpp))


def _advice(cpp: CppParam) -> tuple[str, ...]:
    """Suggest a replacement for a parameter."""
    if cpp.shape is Shape.POINTER and "char" in cpp.type:
        advice = "take a std::string_view: a text of a call does not end with NUL"
    elif cpp.shape is Shape.POINTER and "Tensor" in cpp.type:
        advice = "write const BE::Tensor*, which is null where a call has no such array"
    elif cpp.shape in (Shape.POINTER, Shape.ARRAY):
        advice = "take a BE::Tensor and use its data_ptr()"
    elif cpp.shape in (Shape.REFERENCE, Shape.RVALUE):
        advice = "take an input by value or const reference, and an output as a BE::Tensor"
    elif cpp.shape is Shape.PACK:
        advice = "list every parameter"
    elif cpp.dtype is not None:
        advice = cpp.dtype.attr_instead
    elif cpp.type.split("::")[-1].replace("const", "").strip(" &") == "Tensor":
        advice = "write BE::Tensor, or `using namespace BE;`"
    elif cpp.type.split("<")[0].endswith("Span"):
        advice = "write BE::Span<const T>, where T is a type of numbers"
    else:
        token = f"attr.{cpp.name or 'NAME'}"
        kinds = f"{token}:enum(a b) for an enumeration, {token}:{{a:float32 b:int32}} for a structure"
        advice = f"write the tokens: {token}:TYPE if the type converts from a scalar, {kinds}"
    return (advice,)
