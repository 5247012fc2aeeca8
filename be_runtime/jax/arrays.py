"""The attributes of a call, and checks of its arrays: outputs, aliases, layouts and the `vmap` method. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError

_VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")

BATCHING_METHODS = frozenset(_VMAP_METHODS[2:])
"""Methods with which one call receives a whole batch."""


class Numbers(NamedTuple):
    """The bits of a number or of an array of one dimension.

    Parameters
    ----------
    dtype : str
        numpy's name of the type in XLA.
    data : bytes
    is_array : bool
    """

    dtype: str
    data: bytes
    is_array: bool = False


class Fields(NamedTuple):
    """A dictionary."""

    items: tuple[tuple[str, Value], ...]


Value = str | Numbers | Fields


def as_jax(value: Value) -> Any:
    """Convert an attribute to what ``jax.ffi`` takes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Fields):
        return {name: as_jax(each) for name, each in value.items}
    import numpy as np

    array = np.frombuffer(value.data, value.dtype)
    return array if value.is_array else array[0]


EffectKind = Literal["none", "side", "ordered"]
Layouts = tuple[tuple[int, ...] | None, ...]
"""Axes of each array from major to minor in memory; None for row-major order."""


class ArraySpec(NamedTuple):
    """The dtype and shape of an array in a kernel."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def array_spec(value: Any, what: str) -> ArraySpec:
    """Return the spec of an array, or of any object with a shape and a dtype.

    Raises
    ------
    ArgumentError
        The value lacks a shape or a dtype, or kernels can't take its dtype.
    """
    _check_struct(value, what)
    dtype = BY_NAME.get(str(value.dtype))
    if dtype is None:
        raise ArgumentError(f"{what} is of {value.dtype}, which a kernel can't take", hints=("cast it first",))
    return ArraySpec(dtype, tuple(map(int, value.shape)))


def _check_struct(value: object, what: str) -> None:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ArgumentError(
            f"{what} is {value!r}, which has no shape and dtype", hints=("pass jax.ShapeDtypeStruct(shape, dtype)",)
        )
    if not all(hasattr(extent, "__index__") for extent in value.shape):
        shape = ", ".join(map(str, value.shape))
        raise ArgumentError(
            f"{what} has the symbolic shape ({shape}), and a kernel is called with known extents",
            hints=("export the program once for each shape; C++ and CUDA by jax.ffi.ffi_call take any shape",),
        )


def check_structs(leaves: Sequence[object], label: str = "outs") -> None:
    """Check that there is an output, and that each has a shape and a dtype, supported or not."""
    if not leaves:
        raise ArgumentError(f"{label} is empty: a kernel needs at least one output")
    for index, leaf in enumerate(leaves):
        _check_struct(leaf, f"{label}[{index}]")


def check_outs(leaves: Sequence[Any]) -> tuple[ArraySpec, ...]:
    """Check the outputs of a kernel, at least one."""
    check_structs(leaves)
    return tuple(array_spec(leaf, f"outs[{index}]") for index, leaf in enumerate(leaves))


def check_vmap_method(method: object) -> str | None:
    """Check that a method is one of ``jax.ffi.ffi_call``'s, or None."""
    if method is not None and method not in _VMAP_METHODS:
        raise ArgumentError(f"vmap_method={method!r} is not one of {', '.join(map(repr, _VMAP_METHODS))} or None")
    return None if method is None else str(method)


def check_aliases(aliases: object) -> dict[int, int]:
    """Check the argument ``input_output_aliases`` and copy it to a dict."""
    given = {} if aliases is None else aliases
    numbers = [n for pair in given.items() for n in pair] if isinstance(given, Mapping) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise ArgumentError(
            f"input_output_aliases must map the number of an input to the number of an output, not {aliases!r}"
        )
    return dict(given)  # type: ignore[call-overload, no-any-return]


def match_aliases(aliases: Mapping[int, int], inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> None:
    """Check that each input can share its memory with the output it is paired with, and with no other input."""
    for source, target in aliases.items():
        twice = [other for other in aliases if aliases[other] == target and other != source]
        if twice:
            raise ArgumentError(
                f"input_output_aliases gives output {target} the memory of inputs {source} and {twice[0]}"
            )
    for source, target in aliases.items():
        if source >= len(inputs) or target >= len(outs):
            raise ArgumentError(
                f"input_output_aliases has {source}: {target}, but there are {len(inputs)} inputs and "
                f"{len(outs)} outputs"
            )
        if inputs[source] != outs[target]:
            raise ArgumentError(
                f"input {source} is {inputs[source]} and can't be output {target}, which is {outs[target]}"
            )


def check_layouts(given: Sequence[Sequence[int] | None] | None, what: str) -> Layouts | None:
    """Check layouts: a permutation of the axes of each array."""
    if given is None:
        return None
    try:
        layouts = tuple(None if each is None else tuple(map(int, each)) for each in given)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what} must have a sequence of axes, or None, for each array, not {given!r}") from None
    for index, each in enumerate(layouts):
        if each is not None and sorted(each) != list(range(len(each))):
            raise ArgumentError(f"{what}[{index}] is {each}, which is not a permutation of an array's axes")
    return layouts


def match_layouts(label: str, layouts: Layouts | None, arrays: Sequence[ArraySpec], what: str) -> None:
    """Check that there is a layout for each array, of as many axes."""
    if layouts is None:
        return
    if len(layouts) != len(arrays):
        raise ArgumentError(f"{label}: {what} describes {len(layouts)} arrays, but the call has {len(arrays)}")
    for index, (layout, array) in enumerate(zip(layouts, arrays, strict=True)):
        if layout is not None and len(layout) != array.ndim:
            raise ArgumentError(f"{label}: {what}[{index}] is {layout}, but the array is {array}")
