"""Theoretical occupancy: the blocks of a kernel that one multiprocessor holds at a time. Pure.

The arithmetic is that of ``cuda_occupancy.h`` of CUDA 13.0, by which a test checks it. Warps and shared memory of a
multiprocessor are no part of that header; they are from "Technical Specifications per Compute Capability" of the CUDA
C++ Programming Guide.
"""

from __future__ import annotations

from typing import NamedTuple

from be_toolchain.arch import Arch

_WARP, _PARTITIONS = 32, 4
_REGISTERS, _REGISTER_UNIT, _MOST_REGISTERS = 65536, 256, 255
_MOST_THREADS = 1024
_KIB = 1024


class _Multiprocessor(NamedTuple):
    warps: int
    blocks: int
    shared_kib: int


_MULTIPROCESSORS = {
    (7, 0): _Multiprocessor(64, 32, 96),
    (7, 5): _Multiprocessor(32, 16, 64),
    (8, 0): _Multiprocessor(64, 32, 164),
    (8, 6): _Multiprocessor(48, 16, 100),
    (8, 7): _Multiprocessor(48, 16, 164),
    (8, 9): _Multiprocessor(48, 24, 100),
    (9, 0): _Multiprocessor(64, 32, 228),
    (10, 0): _Multiprocessor(64, 32, 228),
    (10, 3): _Multiprocessor(64, 32, 228),
    (11, 0): _Multiprocessor(48, 24, 228),
    (12, 0): _Multiprocessor(48, 24, 100),
    (12, 1): _Multiprocessor(48, 24, 100),
}


class Occupancy(NamedTuple):
    """The occupancy of a kernel with blocks of one size.

    Parameters
    ----------
    block : int
        Threads of a block.
    blocks : int
        Blocks that one multiprocessor holds; 0 if such a block can't be launched.
    warps : int
        Warps of these blocks.
    fraction : float
        Part of the multiprocessor's warps.
    limiter : {"registers", "shared memory", "warps", "blocks"}
        The resource that allows no further block.
    """

    block: int
    blocks: int
    warps: int
    fraction: float
    limiter: str


def occupancy(arch: Arch, *, registers: int, shared: int, block: int) -> Occupancy | None:
    """Compute the theoretical occupancy of a kernel; None for an architecture whose limits are not known.

    Parameters
    ----------
    arch : Arch
    registers : int
        Registers of a thread.
    shared : int
        Bytes of shared memory of a block, without the driver's.
    block : int
        Threads of a block.

    Examples
    --------
    >>> occupancy(Arch(9, 0), registers=64, shared=0, block=256)
    Occupancy(block=256, blocks=4, warps=32, fraction=0.5, limiter='registers')
    """
    limits = _MULTIPROCESSORS.get((arch.major, arch.minor))
    if limits is None:
        return None
    warps = -(-block // _WARP)
    allowed = {
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared(arch, limits.shared_kib * _KIB, shared),
        "warps": limits.warps // warps if block <= _MOST_THREADS else 0,
        "blocks": limits.blocks,
    }
    limiter = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limiter]
    return Occupancy(block, blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _by_registers(registers: int, warps: int) -> int:
    """Registers are allocated for warps, in units, in each of the multiprocessor's partitions."""
    per_warp = _round_up(registers * _WARP, _REGISTER_UNIT)
    if registers > _MOST_REGISTERS or per_warp * _round_up(warps, _PARTITIONS) > _REGISTERS:
        return 0
    return _REGISTERS // _PARTITIONS // max(per_warp, 1) * _PARTITIONS // warps


def _by_shared(arch: Arch, available: int, shared: int) -> int:
    """The driver takes a part of each block's shared memory since 8.0."""
    unit, reserved = (128, _KIB) if arch.major >= 8 else (256, 0)
    return available // max(_round_up(shared + reserved, unit), 1)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
