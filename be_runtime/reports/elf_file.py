"""Sections of an ELF file of 64 bits, as device code and libraries are. Pure.

The format: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")


class Section(NamedTuple):
    """A section: its name, and its size."""

    name: str
    size: int


def sections(data: bytes) -> tuple[Section, ...]:
    """List the sections of an ELF file; none if it isn't one of 64 bits.

    Examples
    --------
    >>> sections(b"not an ELF file")
    ()
    """
    if data[:5] != b"\x7fELF\x02" or len(data) < 64:
        return ()
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [_SECTION.unpack_from(data, table + index * size) for index in range(count)]
    start = rows[names][4]
    return tuple(Section(_text(data, start + row[0]), row[5]) for row in rows)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
