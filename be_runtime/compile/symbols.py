"""Names that object files define, from their ELF symbol tables, and objcopy's options that make them private.

A folder's files are compiled one by one and linked into one library. Two of them may define the same name, a helper
kernel called ``kernel`` for example; such a name is made private to each of them before linking. A name that only one
file defines stays visible to the others. Instances of templates are weak symbols, of which the linker keeps one. But
clang's host-side symbol of a template kernel stands for the kernel of its own file, so it is renamed in each file.

The format is that of the ELF-64 object file specification: the header, section headers and ``Elf64_Sym``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_SHT_SYMTAB = 2
_STB_GLOBAL = 1
_STB_WEAK = 2
_KERNEL_HANDLE = "__device_stub__"
"""Part of the name of a kernel's host-side symbol in clang's objects."""
_SHN_UNDEF = 0
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class Definitions(NamedTuple):
    """Names that an object defines.

    Parameters
    ----------
    strong : frozenset of str
        Names with global binding: a second definition is a linker error.
    kernels : frozenset of str
        Weak names that stand for a kernel of this object.
    """

    strong: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()


def definitions(image: bytes) -> Definitions:
    """Return the names that no two objects may share; other weak and unique names may repeat.

    Parameters
    ----------
    image : bytes
        A relocatable ELF-64 little-endian file. Any other file, such as LLVM bitcode, has no such names.
    """
    if image[:6] != _ELF_64_LITTLE:
        return Definitions()
    offset = int.from_bytes(image[0x28:0x30], "little")
    entry_size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, offset + index * entry_size) for index in range(count)]
    names: set[tuple[int, str]] = set()
    for section in sections:
        if section[1] == _SHT_SYMTAB:
            strings = sections[section[6]]
            names.update(_defined(image, section[4], section[5], strings[4]))
    return Definitions(
        strong=frozenset(name for binding, name in names if binding == _STB_GLOBAL),
        kernels=frozenset(name for binding, name in names if binding == _STB_WEAK and _KERNEL_HANDLE in name),
    )


def _defined(image: bytes, table: int, size: int, strings: int) -> Iterable[tuple[int, str]]:
    """Yield the binding and name of each symbol that the object defines."""
    for position in range(table, table + size, _SYMBOL.size):
        name, info, _other, section, _value, _size = _SYMBOL.unpack_from(image, position)
        if section != _SHN_UNDEF and name:
            start = strings + name
            yield info >> 4, image[start : image.index(b"\0", start)].decode()


def separating_options(objects: Mapping[str, Definitions]) -> dict[str, list[str]]:
    """Return objcopy's options that make shared names private, for each object that has some.

    Examples
    --------
    >>> one, two = Definitions(strong=frozenset({"f", "g"})), Definitions(strong=frozenset({"f"}))
    >>> separating_options({"a.o": one, "b.o": two})
    {'a.o': ['--localize-symbol=f'], 'b.o': ['--localize-symbol=f']}
    """
    strong = _repeated(found.strong for found in objects.values())
    kernels = _repeated(found.kernels for found in objects.values())
    options = {
        path: [
            *(f"--localize-symbol={name}" for name in sorted(found.strong & strong)),
            *(f"--redefine-sym={name}={name}.{number}" for name in sorted(found.kernels & kernels)),
        ]
        for number, (path, found) in enumerate(objects.items())
    }
    return {path: each for path, each in options.items() if each}


def _repeated(tables: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the names that more than one object defines."""
    counts = Counter(name for table in tables for name in table)
    return frozenset(name for name, count in counts.items() if count > 1)
