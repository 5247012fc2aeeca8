"""Types of the parameters of a cuTile kernel: for cuTile, and as texts of a variant."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.parameters import DIVISIBLE

LARGEST = 2**31 - 1
_TYPES = frozenset(
    {
        *("bool", "bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""Element types of whole bytes. ``cuda.tile`` has the same names, except ``bool_``."""


class Constant(NamedTuple):
    """A parameter that is a constant of the compiled kernel."""

    value: Any


class Array(NamedTuple):
    """The type of an array for cuTile's compiler, see ``cuda.tile.compilation.ArrayConstraint``.

    Parameters
    ----------
    dtype : str
        Name of the element type in JAX.
    index_bits : int
        32 or 64: bits of each extent and stride.
    shape_constant, stride_constant : tuple of (int or None)
    shape_divisible_by, stride_divisible_by : tuple of int
    base_addr_divisible_by : int
    alias_groups : tuple of str
        Names for the memory that the array shares with another one; empty if it shares none.
    """

    dtype: str
    index_bits: int
    shape_constant: tuple[int | None, ...]
    stride_constant: tuple[int | None, ...]
    shape_divisible_by: tuple[int, ...]
    stride_divisible_by: tuple[int, ...]
    base_addr_divisible_by: int
    alias_groups: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The type as text of a variant."""
        return json.dumps(self)

    @property
    def shown(self) -> str:
        """The type for messages: ``float32[?, 64]``, where ``?`` is an extent of any size."""
        shape = ", ".join("?" if extent is None else str(extent) for extent in self.shape_constant)
        return f"{self.dtype}[{shape}]{' at any address' * (self.base_addr_divisible_by < DIVISIBLE)}"

    @classmethod
    def parse(cls, text: str) -> Array:
        """Read the type from a variant."""
        fields: list[Any] = [tuple(each) if isinstance(each, list) else each for each in json.loads(text)]
        return cls(*fields)

    @property
    def general(self) -> Array:
        """The type of arrays with any extents, if none is constant."""
        ones = (1,) * len(self.shape_constant)
        return self._replace(shape_divisible_by=ones, stride_divisible_by=ones)


class Hint(NamedTuple):
    """The annotation of a parameter.

    Parameters
    ----------
    bits : int
        Bits of an array's indices, or of a number.
    static_shape, static_stride : tuple of int
        Axes whose extents and strides are constants.
    """

    bits: int = 32
    static_shape: tuple[int, ...] = ()
    static_stride: tuple[int, ...] = ()

    @classmethod
    def of(cls, node: Any) -> Hint:
        """Read the hint from an annotation as cuTile reads it."""
        if node.array is not None:
            each = node.array
            return cls(each.index_dtype.bitwidth, tuple(each.static_shape_dims), tuple(each.static_stride_dims))
        return cls() if node.scalar is None else cls(node.scalar.dtype.bitwidth)


def array_type(label: str, spec: ArraySpec, hint: Hint, *, is_aligned: bool, is_split: bool) -> Array:
    """Return the type of an array whose elements lie in row-major order.

    Parameters
    ----------
    label : str
        Beginning of messages.
    hint : Hint
    is_aligned : bool
        True if its memory begins at a multiple of 16 bytes.
    is_split : bool
        True if the extents of one device are not known.

    Raises
    ------
    ArgumentError
        cuTile lacks the element type, or the array needs indices of 64 bits or constant extents that are unknown.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> array_type("f: x", ArraySpec(BY_NAME["float32"], (4, 6)), Hint(), is_aligned=True, is_split=False)[2:6]
    ((None, None), (None, 1), (1, 1), (1, 1))
    """
    strides = [math.prod(spec.shape[at + 1 :]) for at in range(spec.ndim)]
    if hint.bits == 32 and any(each > LARGEST for each in (*spec.shape, *strides)):
        name = label.rpartition(" ")[2]
        raise ArgumentError(
            f"{label} is {spec}, which needs extents and strides of 64 bits",
            hints=(f"annotate the parameter: {name}: ct.IndexedWithInt64",),
        )
    static = (hint.static_shape, hint.static_stride)
    if is_split and any(static):
        raise ArgumentError(f"{label} has constant extents or strides, and the signature splits axes over devices")
    of_shape, of_stride = ({dim % spec.ndim for dim in dims if spec.ndim} for dims in static)
    unit = max(DIVISIBLE * 8 // spec.dtype.bits, 1)
    return Array(
        scalar_type(label, spec.dtype.name),
        hint.bits,
        tuple(extent if at in of_shape else None for at, extent in enumerate(spec.shape)),
        tuple(each if at in of_stride or at == spec.ndim - 1 else None for at, each in enumerate(strides)),
        tuple(1 if is_split or extent % DIVISIBLE else DIVISIBLE for extent in spec.shape),
        tuple(1 if is_split or stride % unit else unit for stride in strides),
        DIVISIBLE if is_aligned else 1,
    )


def scalar_type(label: str, dtype: str) -> str:
    """Check that cuTile has an element type of this name."""
    if dtype not in _TYPES:
        raise ArgumentError(f"{label}: cuTile has no type for {dtype}")
    return dtype


def constraint_of(each: Constant | Array | str) -> Any:
    """Return cuTile's description of a parameter."""
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint, ScalarConstraint

    if isinstance(each, Constant):
        return each.value
    name = each if isinstance(each, str) else each.dtype
    dtype = getattr(ct, "bool_" if name == "bool" else name)
    if isinstance(each, str):
        return ScalarConstraint(dtype)
    return ArrayConstraint(
        dtype,
        len(each.shape_constant),
        index_dtype=getattr(ct, f"int{each.index_bits}"),
        stride_lower_bound_incl=0,
        alias_groups=each.alias_groups,
        may_alias_internally=False,
        stride_constant=each.stride_constant,
        shape_constant=each.shape_constant,
        stride_divisible_by=each.stride_divisible_by,
        shape_divisible_by=each.shape_divisible_by,
        base_addr_divisible_by=each.base_addr_divisible_by,
    )


def sizes_of(each: Constant | Array | str) -> tuple[int, ...]:
    """Return the bytes of a parameter's numbers in the machine code."""
    if isinstance(each, Constant):
        return ()
    if isinstance(each, str):
        return (BY_NAME[each].size_bytes,)
    return (8, *(each.index_bits // 8,) * (2 * len(each.shape_constant)))
