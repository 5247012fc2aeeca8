"""Which names an object file gives to the linker, read from its ELF symbol table.

A folder's files are compiled one by one and linked into one library. Two of them may define the same name, a helper
kernel called ``kernel`` for example; such a name is made private to each of them before linking. A name that only one
file defines stays visible to the others.

The format is that of the ELF-64 object file specification: the header, section headers and ``Elf64_Sym``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable

_SHT_SYMTAB = 2
_STB_GLOBAL = 1
_SHN_UNDEF = 0
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def defined_globals(image: bytes) -> frozenset[str]:
    """Names that an object defines with strong, global binding; weak and unique ones may repeat and are left out.

    Parameters
    ----------
    image : bytes
        A relocatable ELF-64 little-endian file. Anything else, such as LLVM bitcode, has no such names.
    """
    if image[:6] != _ELF_64_LITTLE:
        return frozenset()
    offset = int.from_bytes(image[0x28:0x30], "little")
    entry_size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, offset + index * entry_size) for index in range(count)]
    names: set[str] = set()
    for section in sections:
        if section[1] == _SHT_SYMTAB:
            strings = sections[section[6]]
            names.update(_strong_names(image, section[4], section[5], strings[4]))
    return frozenset(names)


def _strong_names(image: bytes, table: int, size: int, strings: int) -> Iterable[str]:
    for position in range(table, table + size, _SYMBOL.size):
        name, info, _other, section, _value, _size = _SYMBOL.unpack_from(image, position)
        if info >> 4 == _STB_GLOBAL and section != _SHN_UNDEF and name:
            start = strings + name
            yield image[start : image.index(b"\0", start)].decode()


def repeated_names(tables: Iterable[frozenset[str]]) -> frozenset[str]:
    """Names that more than one object defines."""
    counts = Counter(name for table in tables for name in table)
    return frozenset(name for name, count in counts.items() if count > 1)
