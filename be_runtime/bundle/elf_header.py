"""The headers of shared libraries: the dynamic loader believes what they say, and crashes where it is wrong. Pure.

The format is that of https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html and ch5.pheader.html.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import BinaryIO

_HEADER = "<16sHHIQQQIHHHHHH"
_SEGMENT = "<2I6Q"
_ELF64, _SHARED, _LOAD, _DYNAMIC = b"\x7fELF\x02\x01\x01", 3, 1, 2
_USED = (_DYNAMIC, 6, 0x6474E552)
"""The loader's table, the program headers themselves, and what is read-only after relocation: it looks at all three."""

_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MOST_SEGMENTS, _LARGEST_ALIGNMENT, _LARGEST_GAP = 128, 1 << 30, 1 << 16

_Segment = tuple[int, ...]
"""A program header: type, flags, offset, address, physical address, size in the file, size in memory, alignment."""


def library_problem(file: BinaryIO, machine: str) -> str:
    """Return why a file is no shared library for a machine; empty if its headers are those of one.

    Parameters
    ----------
    file : BinaryIO
        The whole file, which can be searched.
    machine : str
        Machine, as ``platform.machine()`` says it.
    """
    size = file.seek(0, 2)
    file.seek(0)
    data = file.read(64)
    if len(data) < 64 or not data.startswith(_ELF64):
        return "it is no ELF file of 64 bits"
    _, kind, code, _, _, start, _, _, own, each, count, *_ = struct.unpack(_HEADER, data)
    if kind != _SHARED or code != _MACHINES.get(machine, code):
        return f"it is no shared library for {machine}"
    if (own, each) != (64, 56) or not 0 < count <= _MOST_SEGMENTS or start + each * count > size:
        return "its ELF header is damaged"
    file.seek(start)
    segments = [*struct.iter_unpack(_SEGMENT, file.read(each * count))]
    return "" if _are_mappable(segments, size) else "its program headers are damaged"


def _are_mappable(segments: list[_Segment], size: int) -> bool:
    """Return whether segments are those of a library: code and data side by side, and one table for the loader."""
    loads = [segment for segment in segments if segment[0] == _LOAD]
    dynamic = [segment for segment in segments if segment[0] == _DYNAMIC]
    used = [segment for segment in segments if segment[0] in _USED]
    gaps = [(after[3] - before[3] - before[6], max(2 * after[7], _LARGEST_GAP)) for before, after in pairwise(loads)]
    return (
        [load[2:4] for load in loads[:1]] == [(0, 0)]
        and all(_is_mappable(load, size) for load in loads)
        and all(0 <= gap <= most for gap, most in gaps)
        and any(load[1] & _EXECUTABLE for load in loads)
        and len(dynamic) == 1
        and any(load[1] & _WRITABLE and _holds(load, dynamic[0]) for load in loads)
        and all(any(_holds(load, segment) for load in loads) for segment in used)
    )


def _is_mappable(load: _Segment, size: int) -> bool:
    """Return whether a segment lies in a file of a size, at an offset that fits its address."""
    _, flags, offset, address, _, in_file, in_memory, alignment = load
    is_aligned = 0 < alignment <= _LARGEST_ALIGNMENT and alignment & (alignment - 1) == 0
    fits = in_file <= in_memory and offset + in_file <= size
    return is_aligned and fits and (address - offset) % alignment == 0 and bool(flags & _READABLE)


def _holds(load: _Segment, part: _Segment) -> bool:
    """Return whether a segment lies in another one, in the file and in memory; what is protected ends with a page."""
    ahead = part[2] - load[2]
    is_mapped = 0 <= ahead <= load[5] - part[5] and part[3] - load[3] == ahead
    return is_mapped and ahead + part[6] <= load[6] + load[7]
