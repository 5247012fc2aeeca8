"""Inference of a spec from a C++ signature: the whole of it, or what an author left out."""

from __future__ import annotations

from be_runtime.errors import SpecError
from be_runtime.spec.attribute_types import render_default
from be_runtime.spec.cpp.cpp_params import TENSORS, CppParam, Shape
from be_runtime.spec.cpp.functions import Function, returns_void
from be_runtime.spec.cpp.places import Places
from be_runtime.spec.grammar import RESERVED, Locate
from be_runtime.spec.mapping import BY_TYPE, at, attribute_of, is_untyped, no_void, uncallable, with_default
from be_runtime.spec.model import Many, Param, Role


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
