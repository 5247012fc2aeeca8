"""The C++ of a module that calls functions of the TVM-FFI C ABI, from their declarations."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime import errors
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec
from be_runtime.signature.model import LEADING, AttrKind, Many, Param, Role, axis_names, call_params

_ARRAYS = (Role.ARG, Role.RET)
_SYMBOL = "__tvm_ffi_"
_LIBRARY = "be_tvm_ffi_library"
_TYPES = {
    "int": "int64",
    "float": "float64",
    "bool": "bool",
    "DataType": "dtype",
    **dict.fromkeys(("ffi.String", "std::string", "const char*", "ffi.SmallStr"), "string"),
}
"""Type of an attribute for each type of the library's metadata."""

_KNOWN = "tokens: as in an arg_spec, =3, =1.5, =true, ='text', =n for an axis, none, stream, stream:int64, returned"


class Word(NamedTuple):
    """One parameter of a function, or one result that it returns.

    Parameters
    ----------
    token : str
        Token of the module's arg_spec; empty for a constant.
    constant : str
        C++ expression of a constant, in which ``{axis}`` stands for the extent of an axis.
    axis : str
        Axis in the constant.
    is_returned : bool
    """

    token: str = ""
    constant: str = ""
    axis: str = ""
    is_returned: bool = False


class Function(NamedTuple):
    """A declared function.

    Parameters
    ----------
    name : str
    words : tuple of Word
        Parameters in the function's own order, then results that it returns.
    owned : bool
        True if the function takes ``Tensor`` objects, not views.
    merged : bool
        True if the leading axes ``...`` of an array are the first axis of the tensor, even if there are none.
    """

    name: str
    words: tuple[Word, ...]
    owned: bool = False
    merged: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """The arg_spec of the module's entry point."""
        return tuple(word.token for word in self.words if word.token)


def read_word(text: str) -> Word:
    """Read one word of a declaration.

    Raises
    ------
    ValueError
        A constant can't be read; the message gives the reason.

    Examples
    --------
    >>> read_word("arg[n]:float32").token, read_word("=3").constant, read_word("returned[n]").token
    ('arg[n]:float32', 'INT64_C(3)', 'ret[n]')
    """
    if text == "none":
        return Word(constant="::BE::tvm_ffi::none()")
    if re.match(r"returned\b", text):
        return Word(token="ret" + text.removeprefix("returned"), is_returned=True)
    if text in ("stream", "stream:int64"):
        value = "::BE::tvm_ffi::stream_value(be_place)"
        if text != "stream":
            value = "::BE::tvm_ffi::value(reinterpret_cast<int64_t>(be_place.stream))"
        return Word(constant=value)
    if not text.startswith("="):
        return Word(token=text)
    return _constant(text[1:])


def _constant(text: str) -> Word:
    if text in ("true", "false", "True", "False"):
        return Word(constant=text.lower())
    if re.fullmatch(r"-?[0-9]+", text):
        if not -(2**63) <= int(text) < 2**63:
            raise ValueError("it is not a 64-bit integer")
        return Word(constant=f"INT64_C({text})" if int(text) > -(2**63) else "INT64_MIN")
    if re.fullmatch(r"[\"'].*[\"']", text) and text[0] == text[-1]:
        if re.search(r"[\x00-\x1f]", text):
            raise ValueError("a text has no control characters")
        return Word(constant=json.dumps(text[1:-1], ensure_ascii=False))
    if text.isidentifier():
        return Word(constant="{axis}", axis=text)
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a constant is a number, true, false, a quoted text or an axis") from None
    if not math.isfinite(number):
        raise ValueError("a constant is finite")
    return Word(constant=repr(number))


def read_function(name: object, declaration: object, *, owned: bool = False) -> Function:
    """Read the declaration of a function.

    Raises
    ------
    SpecError
        A word is unknown.
    """
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise errors.SpecError(f"{name!r} is not the name of a TVM-FFI function: letters, digits and '_'")
    if isinstance(declaration, str):
        texts = [word for _, word in split_words(declaration)]
    elif isinstance(declaration, Sequence) and all(isinstance(each, str) for each in declaration):
        texts = list(declaration)
    else:
        raise errors.SpecError(f"{name}: the declaration must be a text or a list of tokens, not {declaration!r}")
    words = []
    for text in texts:
        try:
            words.append(read_word(text))
        except ValueError as error:
            raise errors.SpecError(f"{name}: {text!r}: {error}", hints=(_KNOWN,)) from None
    return Function(name, tuple(words), owned)


def with_metadata(function: Function, metadata: str | None) -> Function:
    """Complete a function's declaration by the types that its library states.

    Parameters
    ----------
    metadata : str or None
        JSON text of ``__tvm_ffi__metadata_<name>``.

    Raises
    ------
    SpecError
        The declaration has another number of parameters, or a parameter of another kind.

    Examples
    --------
    >>> schema = '{"type":"ffi.Function","named_args":{"params":[{"type":"DLTensor*"},{"type":"float"}]}}'
    >>> function = read_function("f", "ret[]:float32 attr.by")
    >>> with_metadata(function, json.dumps({"type_schema": schema})).tokens
    ('ret[]:float32', 'attr.by:float64')
    """
    if metadata is None:
        return function
    named = json.loads(json.loads(metadata)["type_schema"]).get("named_args")
    if named is None:
        return function
    types = [_type_name(each) for each in named["params"]]
    taken = [word for word in function.words if not word.is_returned]
    if len(types) != len(taken):
        raise errors.SpecError(
            f"{function.name} takes {len(types)} parameters, and {len(taken)} are declared",
            hints=(f"its library declares {', '.join(types) or 'none'}",),
        )
    words = []
    for index, (word, type_name) in enumerate(zip(taken, types, strict=True)):
        is_array = type_name in ("DLTensor*", "ffi.Tensor")
        declared = word.token.split("[")[0].split(":")[0].rstrip("?")
        if declared in ("arg", "ret", "inout") and type_name in _TYPES:
            raise errors.SpecError(f"{function.name}: parameter {index} is {type_name}, not {word.token!r}")
        if declared.startswith("attr.") and is_array:
            raise errors.SpecError(f"{function.name}: parameter {index} is an array, not {word.token!r}")
        if declared.startswith("attr.") and ":" not in word.token and type_name in _TYPES:
            name, _, default = word.token.partition("=")
            word = word._replace(token=f"{name}:{_TYPES[type_name]}{'=' * bool(default)}{default}")  # noqa: PLW2901
        words.append(word)
    words += [word for word in function.words if word.is_returned]
    return function._replace(words=tuple(words), owned=function.owned or "ffi.Tensor" in types)


def _type_name(schema: Mapping[str, Any]) -> str:
    """Return a parameter's type; an optional one is as its type."""
    if schema["type"] == "Optional" and schema.get("args"):
        return _type_name(schema["args"][0])
    return str(schema["type"])


def render(functions: Sequence[Function], platform: str, library: str | None) -> str:
    """Write the C++ of a module that calls functions.

    Parameters
    ----------
    functions : sequence of Function
    platform : {"cpu", "cuda"}
    library : str or None
        Name of the library's file; None for functions that are bound later.

    Raises
    ------
    SpecError
        A declaration is not an arg_spec, or has a parameter that TVM-FFI lacks.
    """
    lines = ['#include "brainevent/detail/tvm_ffi.h"']
    owner = "nullptr"
    if library is not None:
        lines += [
            f'BE_TVM_FFI_LIBRARY("{library}");',
            f'static ::BE::tvm_ffi::Library {_LIBRARY}{{"{library}", be_tvm_ffi_begin, be_tvm_ffi_end}};',
        ]
        owner = f"&{_LIBRARY}"
    for function in functions:
        lines.append(f'static ::BE::tvm_ffi::Function be_call_{function.name}{{{owner}, "{_SYMBOL}{function.name}"}};')
    if library is None:
        (only,) = functions
        lines.append(f"BE_TVM_FFI_BIND(be_call_{only.name})")
    lines += ["namespace be_tvm_ffi_functions {"]
    for function in functions:
        lines += _entry_point(function, platform)
    return "\n".join([*lines, "}", ""])


def _entry_point(function: Function, platform: str) -> list[str]:
    """Write the entry point of one function."""
    params = parse_spec(function.tokens, function=function.name)
    called = call_params(params)
    tokens = [*function.tokens, *(["stream"] if platform == "cuda" else [])]
    names = iter(range(len(called)))
    declared, before, values, after, released = [], [], [], [], []
    returned = sum(word.is_returned for word in function.words)
    number = 0
    for word in function.words:
        if not word.token:
            values.append(_constant_value(word, called, function.name))
            continue
        index = next(names)
        param, name = called[index], f"be_{index}"
        if word.is_returned:
            declared.append(f"BE::Tensor {name}")
            found = f"::BE::tvm_ffi::element(be_result.any, {number}, {returned})"
            after.append(f"::BE::tvm_ffi::keep({found}, {name}, be_place);")
            number += 1
            continue
        declared.append(f"{_cpp_type(param, function.name)} {name}")
        if param.kind is AttrKind.STRING:
            before.append(f"const std::string be_text_{index}({name});")
            name = f"be_text_{index}.c_str()"
        if param.role not in _ARRAYS or param.by_name:
            values.append(f"::BE::tvm_ffi::value({_attribute(param, name)})")
            continue
        array, is_optional = f"be_array_{index}", param.many is Many.OPTIONAL
        described = f"::BE::tvm_ffi::describe({'*' * is_optional}{name}, be_place)"
        if is_optional:
            described = f"{name} ? {described} : ::BE::tvm_ffi::Array{{}}"
        value = f"::BE::tvm_ffi::value({array})"
        if function.merged and param.axes is not None and param.axes[:1] == (LEADING,):
            before.append(f"const ::BE::tvm_ffi::Merged {array}({name}, be_place, {len(param.axes) - 1});")
            value = f"::BE::tvm_ffi::value({array}.array())"
        else:
            before.append(f"const ::BE::tvm_ffi::Array {array} = {described};")
        if function.owned:
            before.append(f"const ::BE::tvm_ffi::OwnedTensor be_object_{index}({array});")
            value = f"be_object_{index}.value()"
            released.append(f"be_object_{index}.check_released();")
        values.append(f"{name} ? {value} : ::BE::tvm_ffi::none()" if is_optional else value)
    if platform == "cuda":
        declared.append("cudaStream_t be_stream")
    place = "::BE::tvm_ffi::place_of(be_stream)" if platform == "cuda" else "{}"
    count = len(values)
    return [
        f"// @BE {function.name} {' '.join(tokens)}",
        f"void {function.name}({', '.join(declared)}) {{",
        f"  const ::BE::tvm_ffi::Place be_place{place if place == '{}' else f' = {place}'};",
        *(f"  {line}" for line in before),
        f"  const ::BE::tvm_ffi::Any be_values[{count + 1}] = {{{', '.join(values)}}};",
        "  {",  # the result may be one of the tensors: it goes first
        "    ::BE::tvm_ffi::Result be_result;",
        f"    ::be_call_{function.name}(be_place, be_values, {count}, &be_result.any);",
        *(f"    {line}" for line in after),
        "  }",
        *(f"  {line}" for line in released),
        "}",
    ]


def _cpp_type(param: Param, function: str) -> str:
    """Return the C++ type of an entry point's parameter."""
    if param.role in _ARRAYS and param.many is not Many.ANY and not param.by_name:
        if param.many is Many.OPTIONAL:
            return "const BE::Tensor*" if param.role is Role.ARG else "BE::Tensor*"
        return "const BE::Tensor&" if param.role is Role.ARG else "BE::Tensor"
    is_number = param.role is Role.ATTR and param.kind is AttrKind.SCALAR
    if is_number and param.dtype is None:
        raise errors.SpecError(
            f"{function}: the library does not state the type of attr.{param.name}",
            hints=(f"write attr.{param.name}:int64, :float64, :bool, :string or :dtype",),
        )
    if is_number and param.dtype is not None and not param.dtype.name.startswith("complex"):
        return param.dtype.cpp_types[0]
    if param.kind is AttrKind.STRING:
        return "std::string_view"
    if param.kind is AttrKind.DTYPE:
        return "BE::DType"
    raise errors.SpecError(
        f"{function}: TVM-FFI functions can't take the parameter {param.name or param.role.value!r}",
        hints=("they take arrays, numbers, texts and dtypes", _KNOWN),
    )


def _attribute(param: Param, name: str) -> str:
    """Write the value of an attribute in a call."""
    if param.kind in (AttrKind.STRING, AttrKind.DTYPE):
        return name
    assert param.dtype is not None, "a number has a type"
    if param.dtype.name == "bool":
        return name
    return f"static_cast<{'double' if 'float' in param.dtype.name else 'int64_t'}>({name})"


def _constant_value(word: Word, params: Sequence[Param], function: str) -> str:
    """Write a constant of a call; an axis is the extent of an array that has it."""
    if word.constant.startswith("::"):
        return word.constant
    text = word.constant
    if word.axis:
        places = [
            (index, param.axes.index(word.axis) - (len(param.axes) if param.axes[:1] == ("...",) else 0))
            for index, param in enumerate(params)
            if param.role in _ARRAYS and param.many is Many.ONE and param.axes and word.axis in param.axes
        ]
        if not places:
            known = ", ".join(axis_names(param.axes for param in params)) or "none"
            raise errors.SpecError(f"{function}: '={word.axis}' is not an axis of an array; the axes are {known}")
        index, at = places[0]
        text = f"be_{index}.size({at if at >= 0 else f'be_{index}.ndim() - {-at}'})"
    return f"::BE::tvm_ffi::value({text})"
