"""C++ text for an entry point's attributes: the table, the defaults, and the values that the function takes. Pure.

A number that every call passes needs only a row of the table. All other attributes need text before the trampoline, see
``brainevent/detail/attr_values.h``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.signature.model import AttrKind, EntryPoint, Many, Param, Role

PRESENT = Param(role=Role.ATTR, name="be_present", dtype=BY_NAME["int64"], default=-1)
"""The attribute whose bits mark the optional inputs and results of a call; a call without the attribute has all."""

_DETAIL = "::BE::detail"
_KINDS = {
    AttrKind.SCALAR: "kNumber",
    AttrKind.STRING: "kString",
    AttrKind.ARRAY: "kArray",
    AttrKind.ENUM: "kEnum",
    AttrKind.STRUCT: "kStruct",
    AttrKind.DTYPE: "kDType",
}


def c_string(text: str) -> str:
    r"""Write a C string literal for `text`, which may have quotes, control characters and non-ASCII characters.

    Examples
    --------
    >>> print(c_string('a "b"\n'))
    "a \"b\"\012"
    """
    escapes = {0x22: '\\"', 0x5C: "\\\\"}
    encoded = text.encode("utf-8", "surrogateescape")
    body = "".join(escapes.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in encoded)
    return f'"{body}"'


def attributes_of(entry: EntryPoint) -> tuple[Param, ...]:
    """Return the attributes that calls pass, in the order of the C++ call, and then our own."""
    optional = any(param.many is Many.OPTIONAL for param in entry.params)
    return entry.with_role(Role.ATTR) + ((PRESENT,) if optional else ())


def is_plain(param: Param) -> bool:
    """Return whether an attribute is a number that every call passes."""
    return param.kind is AttrKind.SCALAR and param.default is None


def render_usage(attrs: Sequence[Param]) -> str:
    """Write the keyword arguments with which a call from Python passes some attributes.

    Examples
    --------
    >>> mode = Param(role=Role.ATTR, name="mode", kind=AttrKind.ENUM, choices=("fast", "slow"), default="fast")
    >>> render_usage([mode, Param(role=Role.ATTR, name="n", dtype=BY_NAME["int32"])])
    'optional mode="fast" or "slow", n=np.int32(...)'
    """
    return ", ".join(f"{'optional ' if _may_lack(param) else ''}{param.name}={_usage(param)}" for param in attrs)


def _usage(param: Param) -> str:
    match param.kind:
        case AttrKind.SCALAR:
            return known(param.dtype).attr_usage
        case AttrKind.STRING:
            return '"..."'
        case AttrKind.ARRAY:
            return known(param.dtype).array_usage
        case AttrKind.ENUM:
            return " or ".join(f'"{choice}"' for choice in param.choices)
        case AttrKind.STRUCT:
            return f"dict({render_usage(param.fields)})"
        case AttrKind.DTYPE:
            return "np.int32(an XLA_FFI_DataType)"


def _may_lack(param: Param) -> bool:
    """Return whether a call may leave out an attribute; it may leave out a structure if it may leave out all fields."""
    return param.default is not None or (param.kind is AttrKind.STRUCT and all(map(_may_lack, param.fields)))


def _sorted(attrs: Sequence[Param]) -> list[tuple[int, Param]]:
    """Return attributes with their positions, in XLA's order: by the bytes of their names."""
    return sorted(enumerate(attrs), key=lambda pair: pair[1].name.encode())


def render_rows(attrs: Sequence[Param]) -> str:
    """Write the rows of a table of attributes."""
    rows = (
        f"{{{c_string(param.name)}, {len(param.name.encode())}, {_carrier(param)}, {position}}}"
        for position, param in _sorted(attrs)
    )
    return ", ".join(rows)


def _carrier(param: Param) -> str:
    """Write the type that XLA passes for an attribute, and the number of its parts."""
    if param.kind is AttrKind.SCALAR:
        dtype = known(param.dtype)
        return f"{dtype.attr_type.xla_code}, {dtype.attr_parts}, {str(dtype.attr_type is dtype).lower()}"
    code = known(param.dtype).array_type.xla_code if param.kind is AttrKind.ARRAY else 0
    return f"{code}, {_DETAIL}::kNoNumber, false"


def render_support(attrs: Sequence[Param], name: str) -> str:
    """Write the text before the trampoline, with the table ``be_more_<name>``; empty for plain attributes."""
    return "" if all(map(is_plain, attrs)) else "".join(f"{line}\n" for line in _tables(attrs, name))


def _tables(attrs: Sequence[Param], name: str) -> Iterator[str]:
    ordered = [(param, f"{position}_{name}") for position, param in _sorted(attrs)]
    for param, place in ordered:
        if param.default is not None:
            yield f"static constexpr {_stored_default(param, f'be_default_{place}')};"
        if param.kind is AttrKind.STRUCT:
            yield from _tables(param.fields, place)
            yield f"static constexpr {_DETAIL}::AttrSpec be_fields_{place}[] = {{{render_rows(param.fields)}}};"
    rows = ", ".join(f"{{{_more(param, place)}}}" for param, place in ordered)
    yield f"static constexpr {_DETAIL}::AttrMore be_more_{name}[] = {{{rows}}};"
    for row, (param, place) in enumerate(ordered):
        if param.kind is AttrKind.ENUM:
            yield from _enum_value(param, place)
        if param.kind is AttrKind.STRUCT:
            yield from _struct_value(param, place, f"be_more_{name}[{row}]")


def _more(param: Param, place: str) -> str:
    """Write a row of the second table."""
    if is_plain(param):
        return ""
    default = "nullptr" if param.default is None else f"&be_default_{place}"
    text, count, fields = "nullptr", 0, ""
    if param.kind is AttrKind.STRUCT:
        fields = f", be_fields_{place}, be_more_{place}"
        default = f"be_fields_{place}" if _may_lack(param) else default
        text, count = c_string(render_usage(param.fields)), len(param.fields)
    elif param.kind is AttrKind.ENUM:
        text = c_string(" ".join(param.choices))
    elif param.kind is AttrKind.ARRAY:
        count = known(param.dtype).attr_parts or 1
    return f"{_DETAIL}::AttrKind::{_KINDS[param.kind]}, {default}, {text}, {count}{fields}"


def _enum_value(param: Param, place: str) -> Iterator[str]:
    """Write a class that converts to an enumeration, whose name only the compiler can deduce."""
    choices = ", ".join(f"be_T::{choice}" for choice in param.choices)
    yield f"struct be_value_{place} {{ const void* be_attr;"
    yield f"template <class be_T, class = typename {_DETAIL}::OnlyIf<__is_enum(be_T)>::Type> operator be_T() const {{"
    yield f"constexpr be_T be_choices[] = {{{choices}}}; return {_DETAIL}::be_choice(be_attr, be_choices); }} }};"


def _struct_value(param: Param, place: str, row: str) -> Iterator[str]:
    """Write a class that converts to a structure with the declared fields; other fields keep their initial values."""
    count = len(param.fields)
    yield f"struct be_value_{place} {{ const void* be_attr;"
    yield f"template <class be_T, class = typename {_DETAIL}::OnlyIf<__is_class(be_T)>::Type> operator be_T() const {{"
    yield f"const void* be_values[{count}]; int64_t be_room[{count}];"
    yield f"::be_read_struct(be_attr, {c_string(param.name)}, {row}, be_values, be_room);"
    yield f"const {_DETAIL}::Call be_call{{nullptr, nullptr, be_values, nullptr}}; be_T be_made{{}};"
    for index, field in enumerate(param.fields):
        yield f"{_DETAIL}::be_set(be_made.{field.name}, {render_value(field, index, place)});"
    yield "return be_made; } };"


def render_value(param: Param, index: int, name: str) -> str:
    """Write the C++ value of an attribute in a trampoline."""
    attr = f"be_call.be_attrs[{index}]"
    match param.kind:
        case AttrKind.SCALAR:
            return f"{_DETAIL}::be_attr<{_attr_type(known(param.dtype))}>(be_call, {index})"
        case AttrKind.STRING:
            return f"{_DETAIL}::StringValue{{{attr}}}"
        case AttrKind.ARRAY:
            dtype = known(param.dtype)
            return f"{_DETAIL}::ArrayValue<{_enumerator(dtype)}, {dtype.attr_parts or 1}>{{{attr}}}"
        case AttrKind.ENUM | AttrKind.STRUCT:
            return f"be_value_{index}_{name}{{{attr}}}"
        case AttrKind.DTYPE:
            return f"static_cast<::BE::DType>({_DETAIL}::be_attr<int32_t>(be_call, {index}))"


def _attr_type(dtype: DType) -> str:
    return _cpp_type(dtype) if dtype.attr_type is dtype else f"{_DETAIL}::OpaqueValue<{dtype.size_bytes}>"


def _cpp_type(dtype: DType) -> str:
    name = dtype.cpp_types[0]
    return f"::{name}" if name.endswith("_t") else name


def _enumerator(dtype: DType) -> str:
    return f"::BE::internal::DTypeOf<{_cpp_type(dtype)}>::value"


def _stored_default(param: Param, name: str) -> str:
    """Declare a variable with a default, for the trampoline."""
    value = param.default
    match param.kind:
        case AttrKind.STRING:
            text = str(value)
            return f"{_DETAIL}::Bytes {name}{{{c_string(text)}, {len(text.encode('utf-8', 'surrogateescape'))}}}"
        case AttrKind.ENUM:
            return f"int64_t {name} = {param.choices.index(str(value))}"
        case AttrKind.DTYPE:
            return f"int32_t {name} = static_cast<int32_t>({_enumerator(BY_NAME[str(value)])})"
    dtype = known(param.dtype)
    return f"{_cpp_type(dtype.attr_type)} {name} = {_number(0 if value is None else value, dtype)}"


def _number(value: float | str, dtype: DType) -> str:
    """Write a number as a literal of the type that XLA passes."""
    number = float(value) if dtype.kind == "float" else int(value)
    if dtype.is_narrow:
        return f"0x{_raw_bits(number, dtype):04x}"
    if isinstance(number, float):
        special = {"inf": "__builtin_inf()", "-inf": "-__builtin_inf()", "nan": '__builtin_nan("")'}
        suffix = ""
        if dtype.size_bytes == 4:
            suffix = "f"
            if abs(number) <= float.fromhex("0x1.fffffep+127"):  # compilers warn of a number that they have to round
                (number,) = struct.unpack("f", struct.pack("f", number))
        return special.get(str(number)) or f"{number.hex()}{suffix}"
    if dtype.kind == "bool":
        return str(bool(number)).lower()
    if number == -1 << 63:
        return "-INT64_C(9223372036854775807) - 1"
    return f"UINT64_C({number})" if dtype.kind == "uint" else f"INT64_C({number})"


def _raw_bits(number: float, dtype: DType) -> int:
    """Return the bits of a 16-bit float, rounded to the nearest."""
    if dtype.name == "float16":
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    if math.isnan(number):
        return 0x7FC0
    bits = int(struct.unpack("<I", struct.pack("<f", number))[0])
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def known(dtype: DType | None) -> DType:
    """Return the type that discovery gives every attribute that has one."""
    assert dtype is not None, "discovery gives every attribute a type"
    return dtype
