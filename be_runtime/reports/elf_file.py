"""Sizes of sections and functions in an ELF file of 64 bits, as device code and libraries are. Pure.

The format: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _FUNCTION = 2, 11, 2


class Section(NamedTuple):
    """A section: its name, its type, its place in the file, its size, and the section of its texts."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


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
    return tuple(Section(_text(data, start + row[0]), row[1], row[4], row[5], row[6]) for row in rows)


def function_sizes(data: bytes) -> dict[str, int]:
    """Return the bytes of code of each function that a library names."""
    found = sections(data)
    return {
        name: size
        for table in found
        if table.kind in (_SYMTAB, _DYNSYM)
        for name, size in _functions(data, table, found[table.link])
    }


def _functions(data: bytes, table: Section, texts: Section) -> Iterator[tuple[str, int]]:
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name, info, _other, _index, _value, size = _SYMBOL.unpack_from(data, at)
        if info & 15 == _FUNCTION and size:
            yield _text(data, texts.offset + name), size


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
