"""Types of attributes in an arg_spec: ``float32``, ``int64[]``, ``enum(a b)``, ``{lr:float32 n:int32=3}``.

::

    TYPE    = NUMERIC                               a number
            | NUMERIC "[]"                          an array of numbers
            | "string" | "dtype"
            | "enum(" NAME { NAME } ")"             one of these names
            | "{" FIELD { FIELD } "}"               a structure, passed as a dict
    FIELD   = NAME ":" TYPE [ "=" DEFAULT ]         TYPE must not be a structure
    NUMERIC = "bool" | an integer, float or complex type, such as float32
    DEFAULT = a number | "true" | "false" | a string without spaces
"""

from __future__ import annotations

import contextlib
import re
import struct

from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DType
from be_runtime.signature.model import AttrKind, Param, Role

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENUM = r"(?s:enum\((.*)\))"
_FIELD = r"(?:\{[^}]*\}|\([^)]*\)|[^\s{(])+"
_BOOLS = {"true": True, "false": False, "True": True, "False": False}
_KINDS = {"string": AttrKind.STRING, "dtype": AttrKind.DTYPE}


class UnknownTypeError(ValueError):
    """No type has the name; the exception's argument is the name."""


def split_default(text: str) -> tuple[str, str | None]:
    """Split a type from its default, at the ``=`` outside of brackets.

    Examples
    --------
    >>> split_default("{n:int32=3}"), split_default("float32=1")
    (('{n:int32=3}', None), ('float32', '1'))
    """
    depth = 0
    for index, char in enumerate(text):
        depth += (char in "{(") - (char in "})")
        if char == "=" and depth == 0:
            return text[:index], text[index + 1 :]
    return text, None


def parse_type(text: str, param: Param) -> Param:
    """Parse a type, and return the attribute with it.

    Raises
    ------
    UnknownTypeError
        The type does not exist.
    ValueError
        A name of an enumeration or a field of a structure is invalid. The message names it.
    """
    if text in _KINDS:
        return param._replace(kind=_KINDS[text])
    if text.endswith("[]"):
        return param._replace(kind=AttrKind.ARRAY, dtype=_dtype(text[:-2]))
    enum = re.fullmatch(_ENUM, text)
    if enum is not None:
        return param._replace(kind=AttrKind.ENUM, choices=_names(enum[1].split(), "the enumeration"))
    if text.startswith("{") and text.endswith("}"):
        fields = tuple(_field(word) for word in re.findall(_FIELD, text[1:-1]))
        _names([field.name for field in fields], "the structure")
        return param._replace(kind=AttrKind.STRUCT, fields=fields)
    return param._replace(dtype=_dtype(text))


def _dtype(name: str) -> DType:
    if name in ATTR_TYPES:
        return ATTR_TYPES[name]
    if name in BY_NAME:
        raise ValueError(f"XLA has no attributes of {name}; {BY_NAME[name].attr_instead}")
    raise UnknownTypeError(name)


def _names(names: list[str], what: str) -> tuple[str, ...]:
    """Check names: there is at least one, each is an identifier, and none repeats."""
    if not names:
        raise ValueError(f"{what} is empty")
    seen: set[str] = set()
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{what} has {name!r}, which is not an identifier")
        if name in seen:
            raise ValueError(f"{what} has {name!r} twice")
        seen.add(name)
    return tuple(names)


def _field(word: str) -> Param:
    name, colon, rest = word.partition(":")
    text, default = split_default(rest)
    if not colon or text.startswith("{"):
        raise ValueError(f"the field {word!r} is not NAME:TYPE")
    field = parse_type(text, Param(role=Role.ATTR, name=name))
    return field if default is None else parse_default(default, field)


def parse_default(text: str, param: Param) -> Param:
    """Parse a default, and return the attribute with it.

    Raises
    ------
    ValueError
        The attribute can't have this value.
    """
    if param.kind is AttrKind.STRING and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        raise ValueError(f"the default {text} is in quotes; write the text alone: ={text[1:-1]}")
    value = _value(text, param)
    if value is None:
        kind = render_type(param) or "a number; of another type it is written attr.NAME:TYPE=VALUE"
        raise ValueError(f"{text!r} can't be the default of {kind}")
    return param._replace(default=value)


def _value(text: str, param: Param) -> bool | float | str | None:
    """Parse a default; return None if the attribute can't have the value."""
    if param.kind is AttrKind.STRING:
        return None if "\0" in text else text
    if param.kind is AttrKind.ENUM:
        return text if text in param.choices else None
    if param.kind is AttrKind.DTYPE:
        return text if text in BY_NAME else None
    if param.kind is not AttrKind.SCALAR or (param.dtype is not None and param.dtype.kind == "complex"):
        return None
    return _number(text, param.dtype)


def _number(text: str, dtype: DType | None) -> bool | float | None:
    if text in _BOOLS:
        return _BOOLS[text] if dtype is None or dtype.kind == "bool" else None
    with contextlib.suppress(ValueError):
        if dtype is None or dtype.kind != "float":
            number = int(text)
            return number if dtype is None or _holds(dtype, number) else None
    with contextlib.suppress(ValueError, OverflowError):
        real = float(text)
        if dtype is None:
            return real
        if dtype.kind == "float":
            struct.pack({"float16": "<e", "float64": "<d"}.get(dtype.name, "<f"), real)  # raises if it overflows
            return real
    return None


def _holds(dtype: DType, number: int) -> bool:
    bits = 8 * dtype.size_bytes
    if dtype.kind == "int":
        return number.bit_length() < bits or number == -1 << (bits - 1)
    return 0 <= number < (1 << bits if dtype.kind == "uint" else 2)


def render_type(param: Param) -> str:
    """Format a type for `parse_type`; return an empty text if the type is unknown.

    Examples
    --------
    >>> render_type(parse_type("{lr:float32 mode:enum(a b)=a}", Param(role=Role.ATTR)))
    '{lr:float32 mode:enum(a b)=a}'
    """
    match param.kind:
        case AttrKind.ENUM:
            return f"enum({' '.join(param.choices)})"
        case AttrKind.STRUCT:
            fields = [f"{field.name}:{render_type(field)}{render_default(field)}" for field in param.fields]
            return f"{{{' '.join(fields)}}}"
        case AttrKind.ARRAY | AttrKind.SCALAR:
            return f"{param.dtype.name}{'[]' * (param.kind is AttrKind.ARRAY)}" if param.dtype else ""
        case AttrKind.STRING | AttrKind.DTYPE:
            return param.kind.name.lower()


def render_default(param: Param) -> str:
    """Format a default with its ``=``; return an empty text if there is none."""
    if param.default is None:
        return ""
    return f"={str(param.default).lower() if isinstance(param.default, bool) else param.default}"
