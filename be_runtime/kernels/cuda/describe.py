"""Data for the native launcher: a kernel's images, once, and the geometry and parameters of each call. Pure.

The layout of the attributes is that of ``native/launcher.cc``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from be_runtime.dtypes import DType
from be_toolchain.arch import Arch

ID_DIGITS = 32
"""Number of hexadecimal digits of a kernel's id."""


class Form(IntEnum):
    """The work of one launch of an image: one call or a batch."""

    SINGLE = 0
    BATCH = 1


class KernelImage(NamedTuple):
    """A kernel compiled for one architecture.

    Parameters
    ----------
    arch : Arch
        Architecture that it was compiled for.
    entry : str
        Name of the kernel in the image.
    data : bytes
        A cubin, or PTX text.
    is_ptx : bool
        True for PTX.
    form : Form
        One call, or a batch along an axis of the grid.
    batch_axis : int
        Axis of the grid for a batch, 1 or 2.
    is_cooperative : bool
        True if the kernel synchronises its whole grid.
    """

    arch: Arch
    entry: str
    data: bytes
    is_ptx: bool = False
    form: Form = Form.SINGLE
    batch_axis: int = 0
    is_cooperative: bool = False


class Kernel(NamedTuple):
    """A kernel for the launcher.

    Parameters
    ----------
    id : str
        Hash of its content, the same in every process.
    name : str
        Name in messages.
    images : tuple of KernelImage
    """

    id: str
    name: str
    images: tuple[KernelImage, ...]

    @property
    def batch_axis(self) -> int:
        """The axis of the grid that a batch may use on every device; 0 for none."""
        axes = {image.arch: 0 for image in self.images}
        axes |= {image.arch: image.batch_axis for image in self.images if image.form is Form.BATCH}
        (axis, *others) = set(axes.values())
        return 0 if others else axis

    @property
    def is_cooperative(self) -> bool:
        """True if it must be launched so that its whole grid runs at once."""
        return any(image.is_cooperative for image in self.images)


class KernelParam(NamedTuple):
    """One parameter of a kernel.

    Parameters
    ----------
    name : str
        Name; empty if it has none.
    type : str
        Type as written.
    is_pointer : bool
    is_const : bool
        True if the kernel can't write to the memory it points to.
    dtype : DType or None
        Element type; None if unknown.
    """

    name: str
    type: str
    is_pointer: bool
    is_const: bool
    dtype: DType | None


class LaunchParam(NamedTuple):
    """One parameter of a kernel, as four numbers that the launcher reads.

    Parameters
    ----------
    kind : int
        0 for a pointer, 1 for an array as Numba passes it, 2 for a scalar.
    first : int
        Index of the buffer, inputs before outputs, or the bits of a scalar.
    ndim : int
        Number of dimensions that the kernel sees.
    bits : int
        Bits of one element.
    """

    kind: int
    first: int
    ndim: int = 0
    bits: int = 0


def pointer_param(index: int, ndim: int, bits: int) -> LaunchParam:
    """Describe a buffer passed as a pointer."""
    return LaunchParam(0, index, ndim, bits)


def array_param(index: int, ndim: int, bits: int) -> LaunchParam:
    """Describe a buffer passed with its shape and strides."""
    return LaunchParam(1, index, ndim, bits)


def scalar_param(value: bytes) -> LaunchParam:
    """Describe a scalar of at most eight bytes, in the machine's byte order.

    Examples
    --------
    >>> import struct
    >>> scalar_param(struct.pack("<i", -1)).first
    4294967295
    """
    bits = int.from_bytes(value, "little")
    return LaunchParam(2, bits - 2**64 if bits >= 2**63 else bits)


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
        True if the whole grid runs at once and may synchronise.
    batch_axis : int
        Axis of the grid that a batch may use, 1 or 2; 0 if none is free.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    is_cooperative: bool = False
    batch_axis: int = 0

    def encode(self) -> tuple[int, ...]:
        """Return the numbers of the attribute ``launch``.

        Examples
        --------
        >>> Geometry((4, 1, 1), (256, 1, 1)).encode()
        (4, 1, 1, 256, 1, 1, 0, 1, 1, 1, 0, 0)
        """
        return (*self.grid, *self.block, self.shared_bytes, *self.cluster, int(self.is_cooperative), self.batch_axis)


def encode_params(params: Sequence[LaunchParam]) -> tuple[int, ...]:
    """Return the numbers of the attribute ``params``."""
    return tuple(number for param in params for number in param)


def content_id(images: Sequence[KernelImage]) -> str:
    """Hash the images into an id, for a kernel whose source has no stable identity."""
    digest = hashlib.sha256()
    for image in images:
        kind = f"{image.arch} {image.is_ptx} {image.form}"
        for part in (kind.encode(), image.entry.encode(), image.data):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:ID_DIGITS]
