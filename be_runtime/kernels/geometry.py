"""The numbers of a launch: a grid and a block within CUDA's limits, and the kernel's parameters.

The limits hold for every GPU since compute capability 3.5 (CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability"); the launcher checks the limits that depend on the device or on the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as as_index
from typing import NamedTuple

from be_runtime.errors import ArgumentError

Dims = int | Sequence[int]
Triple = tuple[int, int, int]

DEFAULT_THREADS = 256
_MAX_BLOCK_THREADS = 1024
_MAX_BLOCK: Triple = (1024, 1024, 64)
_MAX_GRID: Triple = (2**31 - 1, 65535, 65535)
_MAX_CLUSTER = 16
_TOO_MUCH_SHARED = 256 * 1024
"""Bytes that exceed the shared memory of a block on any GPU. The launcher checks the actual device's limit."""
_AXES = "xyz"


class Geometry(NamedTuple):
    """The launch geometry of a kernel.

    Parameters
    ----------
    grid, block : tuple of int
        Three numbers each.
    shared_bytes : int
        Dynamic shared memory.
    cluster : tuple of int
        Three numbers; 1, 1, 1 for no cluster.
    is_cooperative : bool
        True if the whole grid runs at once and may synchronize.
    batch_axis : int
        Axis of the grid that a batch may use, 1 or 2; 0 if none is free.
    is_programmatic : bool
        True if the kernel may begin before the previous kernel ends, for which it waits itself.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    is_cooperative: bool = False
    batch_axis: int = 0
    is_programmatic: bool = False

    def encode(self) -> tuple[int, ...]:
        """Return the numbers of the call's attribute ``launch``.

        Examples
        --------
        >>> Geometry((4, 1, 1), (256, 1, 1)).encode()
        (4, 1, 1, 256, 1, 1, 0, 1, 1, 1, 0, 0)
        """
        flags = self.is_cooperative + 2 * self.is_programmatic
        return (*self.grid, *self.block, self.shared_bytes, *self.cluster, flags, self.batch_axis)


DESCRIPTOR = 5
"""Kind of a parameter that is a TMA descriptor."""

LaunchParam = tuple[int, int, int, int]
"""One parameter of a kernel, as the launcher reads it: kind, first, ndim and bits.

The kind is 0 for a pointer, 1 for an array as Numba passes it, 2 for a scalar, 3 for an array as MLIR passes it, 4 for
an array as cuTile passes it, and 5 for one as Triton passes it with a descriptor. The first number is the index of the
buffer, counting inputs before outputs, or the bits of a scalar. The others are the number of dimensions in the kernel
and the bits of one element; the bits of a descriptor hold its box, its swizzle and its element type, too.
"""

PARAM_NUMBERS = 4


def pointer_param(index: int, ndim: int, bits: int) -> LaunchParam:
    """Describe a buffer passed as a pointer."""
    return 0, index, ndim, bits


def array_param(index: int, ndim: int, bits: int, *, is_memref: bool = False) -> LaunchParam:
    """Describe a buffer passed with its shape and strides, as Numba's arguments or as MLIR's memref."""
    return 3 if is_memref else 1, index, ndim, bits


def strided_param(index: int, ndim: int, bits: int) -> LaunchParam:
    """Describe a buffer passed as a pointer, its shape and its strides in elements, each as a separate parameter."""
    return 4, index, ndim, bits


def descriptor_param(index: int, box: Sequence[int], bits: int, swizzle: int, element_type: int) -> LaunchParam:
    """Describe a buffer passed as a TMA descriptor with its shape and its strides in elements.

    Parameters
    ----------
    box : sequence of int
        Extents of the block that the kernel copies, 1 to 256 along each of at most five axes.
    swizzle, element_type : int
        ``CUtensorMapSwizzle`` and ``CUtensorMapDataType`` of the driver.

    Examples
    --------
    >>> descriptor_param(0, (64, 32), 16, 2, 6)
    (5, 0, 131586, 100794384)
    """
    ndim = len(box) + sum(extent << 3 + 9 * axis for axis, extent in enumerate(box))
    return DESCRIPTOR, index, ndim, bits + (swizzle << 16) + (element_type << 24)


def scalar_param(value: bytes) -> LaunchParam:
    """Describe a scalar of at most eight bytes, in the machine's byte order.

    Examples
    --------
    >>> import struct
    >>> scalar_param(struct.pack("<i", -1))
    (2, 4294967295, 0, 0)
    """
    bits = int.from_bytes(value, "little")
    return 2, bits - 2**64 if bits >= 2**63 else bits, 0, 0


def encode_params(params: Sequence[LaunchParam]) -> tuple[int, ...]:
    """Return the numbers of the call's attribute ``params``."""
    return tuple(number for param in params for number in param)


def explicit_geometry(
    grid: object, block: object, *, shared_mem: object = 0, cluster: object = None, is_empty: bool = False
) -> Geometry:
    """Make the geometry of a launch from its grid and block.

    Parameters
    ----------
    grid, block : int or sequence of int
        One to three numbers.
    shared_mem : int
        Bytes.
    cluster : int, sequence of int or None
        One to three numbers.
    is_empty : bool
        True if there is nothing to compute, so that a grid without blocks is allowed.

    Raises
    ------
    ArgumentError
        A value is not a number, or exceeds the limits of every GPU.

    Examples
    --------
    >>> explicit_geometry(4, (16, 16)).block
    (16, 16, 1)
    """
    blocks = _pad(_numbers(grid, "grid", lowest=0 if is_empty else 1))
    threads = _pad(_numbers(block, "block"))
    clusters = _pad(_numbers(1 if cluster is None else cluster, "cluster"))
    _check_limits(blocks, _MAX_GRID, "grid", "blocks")
    _check_limits(threads, _MAX_BLOCK, "block", "threads")
    for numbers, limit, what, unit in (
        (threads, _MAX_BLOCK_THREADS, "block", "threads"),
        (clusters, _MAX_CLUSTER, "cluster", "blocks"),
    ):
        if math.prod(numbers) > limit:
            raise ArgumentError(f"{what}={numbers} has {math.prod(numbers)} {unit}; the most is {limit}")
    for axis, each, size in zip(_AXES, blocks, clusters, strict=True):
        if each % size:
            raise ArgumentError(f"cluster={cluster!r} does not divide grid={grid!r}: {each} blocks along {axis}")
    return Geometry(blocks, threads, _shared(shared_mem), clusters)


def automatic_geometry(
    launch_dims: object, threads_per_block: object = DEFAULT_THREADS, *, shared_mem: object = 0
) -> Geometry:
    """Make a geometry that covers `launch_dims` threads, by default in blocks of 256, 16 x 16 or 8 x 8 x 4.

    Examples
    --------
    >>> automatic_geometry((100, 20)).grid, automatic_geometry((100, 20)).block
    ((7, 2, 1), (16, 16, 1))
    """
    dims = _numbers(launch_dims, "launch_dims", lowest=0)
    threads = automatic_block(len(dims), threads_per_block)
    blocks = _pad([-(-size // width) for size, width in zip(dims, threads, strict=False)])
    _check_limits(blocks, _MAX_GRID, f"launch_dims={launch_dims!r} needs a grid that", "blocks")
    return Geometry(blocks, threads, _shared(shared_mem))


def choose_geometry(
    grid: object, block: object, launch_dims: object, threads_per_block: object, shared_mem: object, *, is_empty: bool
) -> Geometry:
    """Make the geometry from either `grid` and `block` or `launch_dims`; exactly one way must be used.

    Raises
    ------
    ArgumentError
        Neither or both ways are used, or a value is not allowed.
    """
    if (grid is None) != (block is None):
        given, lacking = ("grid", "block") if block is None else ("block", "grid")
        raise ArgumentError(f"{given} is given without {lacking}", hints=("give both, or launch_dims alone",))
    if (grid is None) == (launch_dims is None):
        how = "neither" if grid is None else "both"
        raise ArgumentError(
            f"{how} of (grid, block) and launch_dims are given",
            hints=("give grid and block, or launch_dims from which they are computed",),
        )
    if launch_dims is None:
        geometry = explicit_geometry(grid, block, shared_mem=shared_mem, is_empty=is_empty)
        threads = math.prod(geometry.block)
        if _threads(threads_per_block) not in (DEFAULT_THREADS, threads):
            raise ArgumentError(
                f"threads_per_block={threads_per_block} is given with a block of {threads} threads",
                hints=("threads_per_block is for launch_dims; with grid, block sets the number of threads",),
            )
        return geometry
    geometry = automatic_geometry(launch_dims, threads_per_block, shared_mem=shared_mem)
    if 0 in geometry.grid and not is_empty:
        raise ArgumentError(f"launch_dims={launch_dims!r} launches nothing, but there are outputs to compute")
    return geometry


def automatic_block(ndim: int, threads_per_block: object = DEFAULT_THREADS) -> Triple:
    """Make a block of about `threads_per_block` threads, whose sides are similar powers of two, the largest along x.

    Examples
    --------
    >>> [automatic_block(ndim) for ndim in (1, 2, 3)]
    [(256, 1, 1), (16, 16, 1), (8, 8, 4)]
    """
    threads = _threads(threads_per_block)
    bits = threads.bit_length() - 1
    z = 2 ** min(bits // 3, 6) if ndim == 3 else 1
    y = 2 ** ((bits - z.bit_length() + 1) // 2) if ndim > 1 else 1
    return threads // (y * z), y, z


def _threads(threads_per_block: object) -> int:
    threads = _single(threads_per_block, "threads_per_block", lowest=1)
    if threads > _MAX_BLOCK_THREADS:
        raise ArgumentError(f"threads_per_block={threads} is too large: a block has at most {_MAX_BLOCK_THREADS}")
    return threads


def _shared(value: object) -> int:
    """Check a size of dynamic shared memory, in bytes."""
    size = _single(value, "shared_mem", lowest=0)
    if size >= _TOO_MUCH_SHARED:
        raise ArgumentError(f"shared_mem={size} is too much: the largest GPUs have less than 256 KiB a block")
    return size


def _numbers(value: object, argument: str, lowest: int = 1) -> tuple[int, ...]:
    """Check one to three whole numbers, not below `lowest`."""
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)
    if not 1 <= len(items) <= 3:
        raise ArgumentError(f"{argument}={value!r} has {len(items)} dimensions; it has one to three")
    expected = f"{argument} must be a whole number or one to three of them, not {value!r}"
    return tuple(_checked(item, expected, f"{argument}={value!r}", lowest) for item in items)


def _single(value: object, argument: str, lowest: int) -> int:
    """Check a whole number, not below `lowest`."""
    return _checked(value, f"{argument} must be one whole number, not {value!r}", f"{argument}={value!r}", lowest)


def _checked(item: object, expected: str, given: str, lowest: int) -> int:
    try:
        number = as_index(None if isinstance(item, bool) else item)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(
            expected, hints=("inside jax.jit a launch can depend on shapes, not on an array's values",)
        ) from None
    if number < lowest:
        raise ArgumentError(f"{given} is not allowed: {number} is below {lowest}")
    return number


def _pad(numbers: Sequence[int]) -> Triple:
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _check_limits(numbers: Triple, limits: Triple, what: str, unit: str) -> None:
    for axis, number, limit in zip(_AXES, numbers, limits, strict=True):
        if number > limit:
            hints = ("put the longest dimension first: only x can be that long",) if number <= _MAX_GRID[0] else ()
            raise ArgumentError(
                f"{what} has {number} {unit} along {axis}; the most is {limit}",
                hints=hints if axis != "x" and unit == "blocks" else (),
            )
