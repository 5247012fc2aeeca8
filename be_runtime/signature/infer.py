"""Infer an arg_spec from a C++ signature, complete an arg_spec, or find contradictions between both."""

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
from be_runtime.signature.model import AttrKind, Many, Param, Role, call_params

_BY_TYPE = {
    Shape.INPUT: Param(role=Role.ARG),
    Shape.OUTPUT: Param(role=Role.RET),
    Shape.OPTIONAL: Param(role=Role.ARG, many=Many.OPTIONAL),
    Shape.OPTIONAL_OUTPUT: Param(role=Role.RET, many=Many.OPTIONAL),
    Shape.INPUTS: Param(role=Role.ARG, many=Many.ANY),
    Shape.OUTPUTS: Param(role=Role.RET, many=Many.ANY),
    Shape.STREAM: Param(role=Role.STREAM),
    Shape.WORKSPACE: Param(role=Role.SCRATCH),
    Shape.STATE: Param(role=Role.STATE),
}
"""Parameters that the C++ type determines."""
_KINDS = {
    Shape.SCALAR: (AttrKind.SCALAR, Kind.NUMBER),
    Shape.STRING: (AttrKind.STRING, Kind.STRING),
    Shape.SPAN: (AttrKind.ARRAY, None),
    Shape.ENUM: (AttrKind.ENUM, Kind.WORD),
    Shape.STRUCT: (AttrKind.STRUCT, None),
    Shape.DTYPE: (AttrKind.DTYPE, Kind.WORD),
}
"""The kind of attribute for a C++ type, and the kind of literal that can be its default."""
_ARRAY_ROLES = frozenset({Role.ARG, Role.RET})
_HANDLES = frozenset({"int64", "uint64"})
_UNSPELT = r"[\s(){}]"
"""Characters that a field's default can't have in an arg_spec."""


def at(what: CppParam | Function, places: Places) -> SourceSpan:
    """Return the place of a parameter, or of a function's name."""
    return places.span(what.start, len(what.name) if isinstance(what, Function) else what.length)


def _error(function: Function, problem: str, span: SourceSpan, *hints: str) -> SpecError:
    return SpecError(f"{function.name}: {problem}", span=span, hints=hints)


def is_untyped(param: Param) -> bool:
    """Return whether an attribute was written without a type."""
    return param.role is Role.ATTR and param.kind is AttrKind.SCALAR and param.dtype is None


def _unusable(function: Function, places: Places, *, is_inferred: bool) -> SpecError | None:
    """Return the error for a function that generated code can't call, or whose spec can't be inferred."""
    problem = hint = ""
    if function.owner:
        problem, hint = f"it is a member of {function.owner}", "write a free function that calls it"
    elif "__global__" in function.specifiers:
        problem, hint = "it is a CUDA kernel (__global__)", "name the host function that launches it"
    elif "__device__" in function.specifiers and "__host__" not in function.specifiers:
        problem, hint = "it is a __device__ function", "name a host function"
    elif is_inferred and function.template is not None:
        problem, hint = "it is a template", f"name its arguments, as in // @BE {function.name}<T> ... T=float32|float64"
    if problem:
        return _error(function, problem, at(function, places), hint)
    # With a spec, a macro or an alias may be void: the compiler decides.
    if returns_void(function) if is_inferred else not returns_value(function):
        return None
    returns = re.sub(r" ?(::|<) ?| (?=[>*&])", lambda match: match[1] or "", function.returns)
    return _error(
        function,
        f"it returns {returns!r}, but an entry point returns void: no caller reads a value",
        places.span(function.returns_start, function.returns_length),
        "take each result as a BE::Tensor parameter, and raise errors by BE_CHECK or an exception",
    )


def _attribute_of(cpp: CppParam, places: Places) -> Param | None:
    """Convert a C++ parameter or field to an attribute; return None if it can't be one."""
    if cpp.shape not in _KINDS:
        return None
    kind, literal_kind = _KINDS[cpp.shape]
    fields = [field for member in cpp.members if (field := _attribute_of(member, places)) is not None]
    spelt = [each._replace(default=None) if re.search(_UNSPELT, str(each.default)) else each for each in fields]
    param = Param(role=Role.ATTR, name=cpp.name, dtype=cpp.dtype, kind=kind, choices=cpp.choices, fields=tuple(spelt))
    literal = read_literal(cpp.default, places)
    if literal is None or literal[0] is not literal_kind:
        return param
    return _with_default(param, literal[1].lower() if kind is AttrKind.DTYPE else literal[1]) or param


def _with_default(param: Param, text: str) -> Param | None:
    """Return an attribute with a default; None if it can't have this default."""
    try:
        return parse_default(text, param)
    except ValueError:
        return None


def contradiction(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> SpecError | None:
    """Return the error if `params` can't be the spec of `function`; None if they can, or if that is uncertain."""
    params = call_params(params)
    error = _unusable(function, places, is_inferred=False) or _wrong_count(params, function, locate, places)
    if error is not None:
        return error
    names = Counter(cpp.name for cpp in function.params)
    for index, (param, cpp) in enumerate(zip(params, function.params, strict=False)):
        problem = _mismatch(param, cpp, is_others=names[param.name] > (param.name == cpp.name))
        if problem:
            return _error(function, problem, at(cpp, places), *_hints(index, params, function, cpp, places))
    known = all(cpp.shape is not Shape.UNKNOWN and cpp.shape is not Shape.PACK for cpp in function.params)
    if function.template and "=" not in function.template and known:
        problem = "it is a template, and the compiler can't deduce its arguments from the parameters"
        hint = f"name its arguments, as in // @BE {function.name}<T> ... T=float32|float64"
        return _error(function, problem, at(function, places), hint)
    return None


def _wrong_count(params: tuple[Param, ...], function: Function, locate: Locate, places: Places) -> SpecError | None:
    """Return the error for too few or too many tokens; None if their number fits."""
    count, most, least = len(params), len(function.params), function.required
    if any(cpp.shape is Shape.PACK for cpp in function.params) or least <= count <= most:
        return None
    takes = f"{most} parameter{'s' * (most != 1)}" if least == most else f"{least} to {most} parameters"
    tokens = f"{count} token{'s' * (count != 1)} ({' '.join(render_spec(params))})"
    span = at(function.params[count], places) if count < most else locate(most) or at(function, places)
    return _error(function, f"the arg_spec has {tokens} but the function has {takes}", span)


def _mismatch(param: Param, cpp: CppParam, *, is_others: bool) -> str:
    """Describe how a token contradicts the parameter at its position; return an empty text if it does not."""
    (token,) = render_spec([param])
    which = f"parameter {cpp.name!r}" if cpp.name else "a parameter"
    if not _fits(param, cpp):
        return f"the token {token!r} is at the position of {which}, which is {cpp.shape.value} ({cpp.type!r})"
    if param.role is Role.RET and _is_input(cpp):
        return f"the token {token!r} makes {which} a result, but it is {cpp.shape.value} ({cpp.type!r}), an input"
    if (param.role is Role.ATTR or param.by_name) and is_others:
        return f"the token {token!r} is at the position of {which}; tokens follow the order of the C++ call"
    problem = wrong_type(param, cpp)
    return f"the token {token!r} can't be passed to {which}: {problem}" if problem else ""


def _is_input(cpp: CppParam) -> bool:
    """Return whether a parameter can only be an input; a ``std::optional`` may also be a result."""
    is_either = cpp.shape is Shape.OPTIONAL and "optional" in cpp.type
    return cpp.shape in _BY_TYPE and _BY_TYPE[cpp.shape].role is Role.ARG and not is_either


def _fits(param: Param, cpp: CppParam) -> bool:
    """Return whether a role may fit a parameter."""
    if cpp.shape is Shape.UNKNOWN or cpp.shape is Shape.PACK:
        return True
    if param.by_name or cpp.shape is Shape.NUMBER:
        return param.by_name and cpp.shape in (Shape.NUMBER, Shape.SCALAR)
    if param.role in _ARRAY_ROLES or cpp.shape in TENSORS:
        return param.role in _ARRAY_ROLES and cpp.shape in TENSORS and param.many is _BY_TYPE[cpp.shape].many
    if param.role in (Role.SCRATCH, Role.STATE) or cpp.shape in (Shape.WORKSPACE, Shape.STATE):
        return cpp.shape in _BY_TYPE and _BY_TYPE[cpp.shape].role is param.role
    if param.role is Role.STREAM:  # a handle has 64 bits, or is a pointer
        return cpp.dtype is None or cpp.dtype.name in _HANDLES
    if param.role is Role.ATTR and not is_untyped(param) and cpp.shape in _KINDS:
        return param.kind is _KINDS[cpp.shape][0]
    return cpp.shape not in (Shape.POINTER, Shape.ARRAY, Shape.STREAM)


def wrong_type(param: Param, cpp: CppParam) -> str:
    """Describe how an attribute's type contradicts its C++ type; return an empty text if it does not."""
    given, taken = param.dtype, cpp.dtype if cpp.shape is not Shape.UNKNOWN else None
    if given is not None and taken is not None:
        # The elements of an array are not converted.
        is_read = taken is given or (given.is_narrow and taken is given.attr_type)
        if cpp.shape is Shape.NUMBER and given is not taken:
            return f"{cpp.type!r} reads {taken.name}, not {given.name}"
        if not (is_read if param.kind is AttrKind.ARRAY else _converts(given, taken)):
            return f"{cpp.type!r} does not hold every {given.name}"
    unknown = [choice for choice in param.choices if cpp.choices and choice not in cpp.choices]
    members = {member.name: member for member in cpp.members}
    unknown += [field.name for field in param.fields if members and field.name not in members]
    if unknown:
        return f"{cpp.type!r} has no {unknown[0]!r}, but {', '.join(cpp.choices or members)}"
    for field in param.fields if members else ():
        member = members[field.name]
        if not _fits(field, member):
            return f"its {field.name!r} is {member.shape.value} ({member.type!r})"
        if problem := wrong_type(field, member):
            return f"{field.name!r}: {problem}"
    return ""


def _converts(given: DType, taken: DType) -> bool:
    """Return whether C++ converts every value without a change; narrow floats may be passed as raw bits.

    An integer may become a float, since small values stay exact.
    """
    if given.is_narrow:
        return taken in (given, given.attr_type)
    if given.kind == "complex":
        return taken.kind == "complex" and given.size_bytes <= taken.size_bytes
    if given.kind == "float":
        needed = given.size_bytes * (2 if taken.kind == "complex" else 1)
        return taken.kind in ("float", "complex") and needed <= taken.size_bytes
    bits, takes = _value_bits(given), _value_bits(taken)
    return not takes or (abs(bits) <= abs(takes) and (bits > 0 or takes < 0))


def _value_bits(dtype: DType) -> int:
    """Return the bits of an integer's or a bool's magnitude, negative for a signed type; 0 for any other type."""
    bits = 8 * dtype.size_bytes
    return {"bool": 1, "uint": bits, "int": 1 - bits}.get(dtype.kind, 0)


def _hints(index: int, params: tuple[Param, ...], function: Function, cpp: CppParam, places: Places) -> tuple[str, ...]:
    """Return hints for the token at `index`, which does not fit a parameter; the first is the token that fits."""
    fitting, param = _BY_TYPE.get(cpp.shape), params[index]
    if cpp.shape is Shape.SCALAR and cpp.name == "stream" and cpp.dtype is BY_NAME["int64"]:
        fitting = Param(role=Role.STREAM)
    elif cpp.shape in _KINDS:
        fitting = _attribute_of(cpp._replace(name=cpp.name or "NAME", default=()), places)
    hints = [f"token {index + 1} should be '{render_spec([fitting])[0]}'"] if fitting else []
    if param.role is Role.RET and _is_input(cpp):
        hints.append("a result must not be const: take it as a BE::Tensor")
        pairs = zip(params, function.params, strict=False)
        if any(other.role is Role.ARG and its.shape is Shape.OUTPUT for other, its in pairs):
            hints.append("an 'arg' is at the position of a mutable BE::Tensor: the order may be swapped")
    elif param.role is Role.ATTR and param.dtype is not None and cpp.dtype is not None and not param.dtype.is_narrow:
        hints.append(f"or make the parameter a type that holds every {param.dtype.name}")
    return tuple(hints)


def infer(function: Function, places: Places) -> tuple[Param, ...]:
    """Infer the role of each parameter of `function`.

    Raises
    ------
    SpecError
        The signature does not determine a role; the error has the place of the parameter.
    """
    error = _unusable(function, places, is_inferred=True)
    if error is not None:
        raise error
    params = tuple(_infer_param(function, cpp, places) for cpp in function.params)
    for role, message in ((Role.STREAM, "there is one stream"), (Role.STATE, "an entry point has one object of state")):
        found = [cpp for cpp, param in zip(function.params, params, strict=True) if param.role is role]
        if len(found) > 1:
            raise _error(function, f"a second {role.value} parameter; {message}", at(found[1], places))
    if not any(param.role is Role.RET and param.many is not Many.OPTIONAL for param in params):
        hint = "an output is a BE::Tensor that is not const; a BE::Tensor* is an output that calls may leave out"
        raise _error(function, "no parameter is an output", at(function, places), hint)
    is_asked = any(param.role is Role.RET and param.many is Many.OPTIONAL for param in params)
    for cpp, param in zip(function.params, params, strict=True):
        if is_asked and param.role is Role.ATTR and param.name == "want":
            problem = "beside an optional result, want is the argument that names the results of a call"
            raise _error(function, problem, at(cpp, places), "give the parameter another name")
    several = [param.role for param in params if param.many is Many.ANY]
    for cpp, param in zip(function.params, params, strict=True):
        if param.many is Many.ANY and several.count(param.role) > 1:
            problem = (
                f"parameter {cpp.name!r} is {cpp.shape.value}, and so is another; one takes all arrays that are left"
            )
            raise _error(function, problem, at(cpp, places))
    return params


def _infer_param(function: Function, cpp: CppParam, places: Places) -> Param:
    """Infer the role of one parameter."""
    known = _BY_TYPE.get(cpp.shape)
    if known is not None:
        return known._replace(name=cpp.name)
    if cpp.shape is Shape.NUMBER and cpp.name and cpp.name not in RESERVED:
        return Param(role=Role.ARG, name=cpp.name, dtype=cpp.dtype, axes=(), by_name=True)
    attribute = _attribute_of(cpp, places)
    if attribute is None:
        raise _unmapped(function, cpp, places)
    problem = hint = ""
    if not cpp.name:
        problem = f"a parameter of type {cpp.type!r} has no name, and an attribute needs one"
    elif cpp.name in RESERVED:
        problem = f"an attribute can't be called {cpp.name}, {RESERVED[cpp.name]}"
    elif cpp.name == "stream" and cpp.shape is Shape.SCALAR:
        if cpp.dtype is BY_NAME["int64"]:
            return Param(role=Role.STREAM, name=cpp.name)
        problem = f"parameter 'stream' has type {cpp.type!r}; a stream is an int64_t or a cudaStream_t"
        hint = "if it is an attribute, write the tokens: attr.stream"
    if problem:
        raise _error(function, problem, at(cpp, places), *filter(None, [hint]))
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
    index = -1
    for param in params:
        index += not (param.in_place and param.role is Role.RET)  # both tokens of a pair are one C++ parameter
        cpp = by_name.get(param.name)
        if param.role is not Role.ATTR:
            name = function.params[index].name if index < len(function.params) else ""
            out.append(param._replace(name=name) if name and not param.by_name else param)
        elif not is_untyped(param):
            declared = None if cpp is None or param.default is not None else _attribute_of(cpp, places)
            if declared is None or declared.default is None:
                out.append(param)
            else:
                out.append(_with_default(param, render_default(declared)[1:]) or param)
        elif cpp is not None:
            out.append(_typed(param, cpp, function, locate(index) or at(cpp, places), places))
        else:
            from difflib import get_close_matches

            close = get_close_matches(param.name, by_name, n=1)
            raise _error(
                function,
                f"'attr.{param.name}' does not name a parameter of the function",
                locate(index) or at(function, places),
                *(f"did you mean 'attr.{name}'?" for name in close),
                f"write the type to use another name: attr.{param.name}:TYPE",
            )
    return tuple(out)


def _typed(param: Param, cpp: CppParam, function: Function, span: SourceSpan, places: Places) -> Param:
    """Return an attribute without a type with the type of its C++ parameter."""
    declared = _attribute_of(cpp, places)
    if declared is None:
        error = _unmapped(function, cpp, places)
        if cpp.shape in TENSORS:
            error.message = f"{function.name}: 'attr.{param.name}' is {cpp.shape.value}"
        if cpp.shape is Shape.UNKNOWN and cpp.dtype is None:
            error.hints = (f"write the type: attr.{param.name}:TYPE",)
        raise error
    if param.default is None:
        return declared
    text = render_default(param)[1:]
    typed = _with_default(declared, text)
    if typed is None:
        problem = f"{text!r} can't be the default of 'attr.{param.name}', which is {cpp.shape.value} ({cpp.type!r})"
        raise _error(function, problem, span)
    return typed


def _unmapped(function: Function, cpp: CppParam, places: Places) -> SpecError:
    """Return the error for a parameter without a role."""
    which = f"parameter {cpp.name!r}" if cpp.name else f"the parameter {cpp.type!r}"
    if cpp.shape is Shape.UNKNOWN and cpp.dtype is not None:
        problem = f"{which} is {cpp.dtype.name} ({cpp.type!r}), and XLA has no attributes of it"
    elif cpp.shape is Shape.UNKNOWN:
        problem = f"{which} has type {cpp.type!r}, which has no mapping"
    else:
        problem = f"{which} is {cpp.shape.value} ({cpp.type!r})"
    return _error(function, problem, at(cpp, places), _replacement(cpp))


def _replacement(cpp: CppParam) -> str:
    """Suggest a replacement for a parameter without a role."""
    if cpp.shape is Shape.POINTER and "char" in cpp.type:
        advice = "take a std::string_view: a string of a call does not end with NUL"
    elif cpp.shape is Shape.POINTER and "Tensor" in cpp.type:
        advice = "write const BE::Tensor*, which is null if a call lacks the array"
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
    elif cpp.type.split("<")[0].endswith("vector"):
        advice = "take a BE::Tensor for an array of a call, or a BE::Span<const T> for an attribute of numbers"
    else:
        token = f"attr.{cpp.name or 'NAME'}"
        kinds = f"{token}:enum(a b) for an enumeration, {token}:{{a:float32 b:int32}} for a structure"
        advice = f"write the tokens: {token}:TYPE if the type converts from a scalar, {kinds}"
    return advice
