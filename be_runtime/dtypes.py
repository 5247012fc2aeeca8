"""The one table of element types: every spelling a kernel's author may use, and what each one is.

numpy, XLA, C++ and the arg_spec grammar name the same types differently; each row holds all of a type's names, so
that no other module maps one to another.

The numbers in :attr:`DType.xla_code` are those of ``XLA_FFI_DataType`` in ``xla/ffi/api/c_api.h``; those in
:attr:`DType.be_code` are the values of ``BE::DType`` in ``brainevent/dtype.h``.
"""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """One element type under all its names."""

    name: str
    """The arg_spec and numpy name, such as ``"float32"``."""
    be_name: str
    """The enumerator of ``BE::DType``, such as ``"Float32"``."""
    be_code: int
    xla_name: str
    """The enumerator of ``XLA_FFI_DataType`` without its prefix, such as ``"F32"``."""
    xla_code: int
    size_bytes: int
    cpp_type: str
    """The C++ type that holds one element in generated code; 16-bit floats are carried as their raw bits."""
    attr_xla_code: int
    """The value of ``XLA_FFI_DataType`` in which XLA carries an attribute of this type: XLA has no attributes that
    are 16-bit floats, passed as their raw bits, or complex, passed as an array of two parts."""
    attr_parts: int
    """The size of that array; 0 for a scalar."""
    attr_usage: str
    """How a caller spells an attribute of this type in Python, such as ``"np.float32(...)"``."""


def _row(
    name: str,
    be: tuple[str, int],
    xla: tuple[str, int],
    size_bytes: int,
    cpp_type: str,
    attr: tuple[int, int, str] | None = None,
) -> DType:
    attr_xla_code, attr_parts, attr_usage = attr or (xla[1], 0, f"np.{name}(...)")
    return DType(
        name=name,
        be_name=be[0],
        be_code=be[1],
        xla_name=xla[0],
        xla_code=xla[1],
        size_bytes=size_bytes,
        cpp_type=cpp_type,
        attr_xla_code=attr_xla_code,
        attr_parts=attr_parts,
        attr_usage=attr_usage,
    )


_PRED, _U16, _F32, _F64 = 1, 7, 11, 12


def _bits(scalar: str) -> tuple[int, int, str]:
    """An attribute passed as the raw bits of a 16-bit float."""
    return _U16, 0, f"{scalar}(...).view(np.uint16)"


def _two(xla_code: int, scalar: str, part: str) -> tuple[int, int, str]:
    """An attribute passed as an array of the real and the imaginary part."""
    return xla_code, 2, f"np.array([...], {scalar}).view({part})"


DTYPES: tuple[DType, ...] = (
    _row("float16", ("Float16", 0), ("F16", 10), 2, "std::uint16_t", _bits("np.float16")),
    _row("float32", ("Float32", 1), ("F32", 11), 4, "float"),
    _row("float64", ("Float64", 2), ("F64", 12), 8, "double"),
    _row("bfloat16", ("BFloat16", 3), ("BF16", 16), 2, "std::uint16_t", _bits("ml_dtypes.bfloat16")),
    _row("int8", ("Int8", 4), ("S8", 2), 1, "std::int8_t"),
    _row("int16", ("Int16", 5), ("S16", 3), 2, "std::int16_t"),
    _row("int32", ("Int32", 6), ("S32", 4), 4, "std::int32_t"),
    _row("int64", ("Int64", 7), ("S64", 5), 8, "std::int64_t"),
    _row("uint8", ("UInt8", 8), ("U8", 6), 1, "std::uint8_t"),
    _row("uint16", ("UInt16", 9), ("U16", 7), 2, "std::uint16_t"),
    _row("uint32", ("UInt32", 10), ("U32", 8), 4, "std::uint32_t"),
    _row("uint64", ("UInt64", 11), ("U64", 9), 8, "std::uint64_t"),
    _row("bool", ("Bool", 12), ("PRED", 1), 1, "bool", (_PRED, 0, "np.bool_(...)")),
    _row(
        "complex64", ("Complex64", 13), ("C64", 15), 8, "std::complex<float>", _two(_F32, "np.complex64", "np.float32")
    ),
    _row(
        "complex128",
        ("Complex128", 14),
        ("C128", 18),
        16,
        "std::complex<double>",
        _two(_F64, "np.complex128", "np.float64"),
    ),
)

BY_NAME: dict[str, DType] = {row.name: row for row in DTYPES}
