"""The table of element types, with their names in an arg_spec, in numpy and in C++, and their attributes in XLA.

``BE_INTERNAL_ELEMENT_TYPES`` in ``brainevent/dtype.h`` has the same rows; a test compares the tables.
"""

from __future__ import annotations

from typing import Literal

from be_toolchain.named import NamedTuple

Kind = Literal["bool", "int", "uint", "float", "complex"]


class DType(NamedTuple):
    """One element type with all its names.

    Parameters
    ----------
    name : str
        Name in an arg_spec and in numpy, such as ``"float32"``.
    kind : {"bool", "int", "uint", "float", "complex"}
    bits : int
        Bits of one element. Elements of fewer than 8 bits are packed: XLA passes ``ceil(n * bits / 8)`` bytes.
    xla_code : int
        Value of ``XLA_FFI_DataType`` in ``xla/ffi/api/c_api.h``.
    cpp_types : tuple of str
        Names in C++, without names such as ``long`` that depend on the compiler. The first is the type of an element of
        a ``BE::Tensor``, or of a byte of packed elements.
    module : str
        Python module with its scalars.
    """

    name: str
    kind: Kind
    bits: int
    xla_code: int
    cpp_types: tuple[str, ...]
    module: str = "np"

    @property
    def size_bytes(self) -> int:
        """The bytes of one element; 0 if several elements share a byte."""
        return self.bits // 8

    @property
    def is_for_arrays_only(self) -> bool:
        """True for a type of at most 8 bits that numpy lacks, of which XLA has no attributes and C++ no numbers."""
        return self.module != "np" and self.bits <= 8

    @property
    def is_narrow(self) -> bool:
        """True for a float of at most 16 bits, which C++ and XLA's attributes lack, so a call passes its raw bits."""
        return self.kind == "float" and self.bits < 32

    @property
    def attr_type(self) -> DType:
        """The type in which XLA carries an attribute, or each of its `attr_parts` numbers."""
        if self.is_narrow:
            return BY_NAME[f"uint{self.bits}"]
        return BY_NAME[f"float{self.bits // 2}"] if self.kind == "complex" else self

    @property
    def array_type(self) -> DType:
        """The type in which XLA carries an element of an array attribute, since it has no arrays of bools."""
        return BY_NAME["uint8"] if self.kind == "bool" else self.attr_type

    @property
    def attr_parts(self) -> int:
        """The size of the array in which XLA carries an attribute; 0 for a scalar."""
        return 2 if self.kind == "complex" else 0

    @property
    def attr_instead(self) -> str:
        """Advice for an attribute of a type that is for arrays only."""
        return f"take {'a float32' if self.kind == 'float' else 'an int32'} and convert it in the kernel, or an array"

    @property
    def attr_usage(self) -> str:
        """The spelling of an attribute in a call from Python, such as ``"np.float32(...)"``.

        Examples
        --------
        >>> BY_NAME["bfloat16"].attr_usage
        'ml_dtypes.bfloat16(...).view(np.uint16)'
        """
        scalar = f"{self.module}.{self.name}"
        if self.attr_type is self:
            return "np.bool_(...)" if self.kind == "bool" else f"{scalar}(...)"
        return self.array_usage if self.attr_parts else f"{scalar}(...).view(np.{self.attr_type.name})"

    @property
    def array_usage(self) -> str:
        """The spelling of an array attribute in a call from Python.

        Examples
        --------
        >>> BY_NAME["bool"].array_usage, BY_NAME["int64"].array_usage
        ('np.array([...], np.bool_).view(np.uint8)', 'np.array([...], np.int64)')
        """
        made = f"np.array([...], {'np.bool_' if self.kind == 'bool' else f'{self.module}.{self.name}'})"
        return made if self.array_type is self else f"{made}.view(np.{self.array_type.name})"


DTYPES: tuple[DType, ...] = (
    DType("float16", "float", 16, 10, ("BE::float16_t", "__half", "half")),
    DType("float32", "float", 32, 11, ("float",)),
    DType("float64", "float", 64, 12, ("double",)),
    DType("bfloat16", "float", 16, 16, ("BE::bfloat16_t", "__nv_bfloat16", "nv_bfloat16"), "ml_dtypes"),
    DType("int8", "int", 8, 2, ("int8_t",)),
    DType("int16", "int", 16, 3, ("int16_t",)),
    DType("int32", "int", 32, 4, ("int32_t",)),
    DType("int64", "int", 64, 5, ("int64_t",)),
    DType("uint8", "uint", 8, 6, ("uint8_t",)),
    DType("uint16", "uint", 16, 7, ("uint16_t",)),
    DType("uint32", "uint", 32, 8, ("uint32_t",)),
    DType("uint64", "uint", 64, 9, ("uint64_t",)),
    DType("bool", "bool", 8, 1, ("bool",)),
    DType("complex64", "complex", 64, 15, ("BE::complex64_t", "complex<float>")),
    DType("complex128", "complex", 128, 18, ("BE::complex128_t", "complex<double>")),
    DType("float8_e5m2", "float", 8, 19, ("BE::float8_e5m2_t", "__nv_fp8_e5m2"), "ml_dtypes"),
    DType("float8_e4m3fn", "float", 8, 20, ("BE::float8_e4m3fn_t", "__nv_fp8_e4m3"), "ml_dtypes"),
    DType("float8_e4m3b11fnuz", "float", 8, 23, ("BE::float8_e4m3b11fnuz_t",), "ml_dtypes"),
    DType("float8_e5m2fnuz", "float", 8, 24, ("BE::float8_e5m2fnuz_t",), "ml_dtypes"),
    DType("float8_e4m3fnuz", "float", 8, 25, ("BE::float8_e4m3fnuz_t",), "ml_dtypes"),
    DType("float8_e4m3", "float", 8, 28, ("BE::float8_e4m3_t",), "ml_dtypes"),
    DType("float8_e3m4", "float", 8, 29, ("BE::float8_e3m4_t",), "ml_dtypes"),
    DType("float8_e8m0fnu", "float", 8, 33, ("BE::float8_e8m0fnu_t", "__nv_fp8_e8m0"), "ml_dtypes"),
    DType("int2", "int", 2, 26, ("BE::int2x4_t",), "ml_dtypes"),
    DType("uint2", "uint", 2, 27, ("BE::uint2x4_t",), "ml_dtypes"),
    DType("int4", "int", 4, 21, ("BE::int4x2_t",), "ml_dtypes"),
    DType("uint4", "uint", 4, 22, ("BE::uint4x2_t",), "ml_dtypes"),
    DType("float4_e2m1fn", "float", 4, 32, ("BE::float4_e2m1fnx2_t", "__nv_fp4x2_e2m1"), "ml_dtypes"),
)

BY_NAME: dict[str, DType] = {row.name: row for row in DTYPES}

ATTR_TYPES: dict[str, DType] = {row.name: row for row in DTYPES if not row.is_for_arrays_only}
"""Element types of attributes, by name."""
