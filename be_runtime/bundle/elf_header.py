"""The headers of shared libraries: the dynamic loader believes what they say, and crashes where it is wrong. Pure.

The format is that of https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html and ch5.pheader.html.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<2I6Q")
_ELF64, _SHARED, _LOAD, _DYNAMIC = b"\x7fELF\x02\x01\x01", 3, 1, 2
_USED = (6, 0x6474E552)
"""The program headers themselves, and what is read-only after relocation: the loader looks at them too."""

_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MOST_SEGMENTS, _LARGEST_ALIGNMENT, _LARGEST_GAP = 128, 1 << 30, 1 << 16


class _Segment(NamedTuple):
    """A program header, by the names of the format without ``p_``."""

    kind: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int

    def holds(self, other: _Segment) -> bool:
        """Return whether another segment lies in this one, in the file and in memory."""
        ahead = other.offset - self.offset
        is_mapped = 0 <= ahead <= self.filesz - other.filesz and other.vaddr - self.vaddr == ahead
        return is_mapped and ahead + other.memsz <= self.memsz + self.align  # what is protected ends with a page

    def is_mappable(self, size: int) -> bool:
        """Return whether it lies in a file of a size, at an offset that fits its address."""
        is_aligned = 0 < self.align <= _LARGEST_ALIGNMENT and self.align & (self.align - 1) == 0
        fits = self.filesz <= self.memsz and self.offset + self.filesz <= size
        return is_aligned and fits and (self.vaddr - self.offset) % self.align == 0 and bool(self.flags & _READABLE)


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
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size or not data.startswith(_ELF64):
        return "it is no ELF file of 64 bits"
    _, kind, code, _, _, start, _, _, own, each, count, *_ = _HEADER.unpack(data)
    if kind != _SHARED or code != _MACHINES.get(machine, code):
        return f"it is no shared library for {machine}"
    if own != _HEADER.size or each != _SEGMENT.size or not 0 < count <= _MOST_SEGMENTS or start + each * count > size:
        return "its ELF header is damaged"
    file.seek(start)
    segments = [*map(_Segment._make, _SEGMENT.iter_unpack(file.read(each * count)))]
    return "" if _are_mappable(segments, size) else "its program headers are damaged"


def _are_mappable(segments: list[_Segment], size: int) -> bool:
    """Return whether segments are those of a library: code and data side by side, and one table for the loader."""
    loads = [segment for segment in segments if segment.kind == _LOAD]
    dynamic = [segment for segment in segments if segment.kind == _DYNAMIC]
    used = [segment for segment in segments if segment.kind in _USED]
    gaps = [
        (after.vaddr - before.vaddr - before.memsz, max(2 * after.align, _LARGEST_GAP))
        for before, after in pairwise(loads)
    ]
    return (
        all(load.is_mappable(size) for load in loads)
        and [(load.vaddr, load.offset) for load in loads[:1]] == [(0, 0)]
        and all(0 <= gap <= most for gap, most in gaps)
        and any(load.flags & _EXECUTABLE for load in loads)
        and len(dynamic) == 1
        and any(load.holds(dynamic[0]) and load.flags & _WRITABLE for load in loads)
        and all(any(load.holds(segment) for load in loads) for segment in used)
    )
