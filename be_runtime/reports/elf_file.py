"""Sections of an ELF file of 64 bits, as device code and libraries are. Pure.

The format: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE, _FUNCTION = 2, 2
"""SHT_SYMTAB and STT_FUNC."""


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
    rows = _rows(data)
    if not rows:
        return ()
    (names,) = struct.unpack_from("<H", data, 62)
    start = rows[names][4]
    return tuple(Section(_text(data, start + row[0]), row[5]) for row in rows)


def function_sizes(data: bytes) -> dict[str, int]:
    """Return the bytes of each function in the symbol table of an ELF file; of those of one name together."""
    found: dict[str, int] = {}
    for row in _rows(data):
        if row[1] != _SYMBOL_TABLE:
            continue
        texts = _rows(data)[row[6]][4]
        for name, info, _other, _section, _value, size in _SYMBOL.iter_unpack(data[row[4] : row[4] + row[5]]):
            if info & 0xF == _FUNCTION and size:
                text = _text(data, texts + name)
                found[text] = found.get(text, 0) + size
    return found


def _rows(data: bytes) -> list[tuple[int, ...]]:
    """Return the table of sections; nothing of what isn't an ELF file of 64 bits."""
    if data[:5] != b"\x7fELF\x02" or len(data) < 64:
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [_SECTION.unpack_from(data, table + index * size) for index in range(count)]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
