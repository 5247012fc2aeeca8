"""Compiled code, with the sections and symbols of ELF files, the output of cuobjdump, and kernels' names in C++."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE, _FUNCTION, _UNDEFINED = 2, 2, 0
"""SHT_SYMTAB, STT_FUNC and SHN_UNDEF."""

PACKAGES = "pip install 'brainevent-toolchain[inspect]'"
"""The command that installs cuobjdump."""

_LONG_S = 120.0


class Symbol(NamedTuple):
    """One row of a symbol table."""

    name: bytes
    binding: int
    is_function: bool
    is_defined: bool
    size: int


def section_sizes(data: bytes) -> list[tuple[str, int]]:
    """List the names and sizes of an ELF file's sections; none if the file is not an ELF file of 64 bits.

    Examples
    --------
    >>> section_sizes(b"not an ELF file")
    []
    """
    rows = _sections(data)
    if not rows:
        return []
    (names,) = struct.unpack_from("<H", data, 62)
    start = rows[names][4]
    return [(_text(data, start + row[0]).decode("utf-8", "replace"), row[5]) for row in rows]


def symbols(data: bytes) -> Iterator[Symbol]:
    """Yield the named symbols of an ELF file's symbol tables."""
    rows = _sections(data)
    for row in rows:
        if row[1] != _SYMBOL_TABLE:
            continue
        texts = rows[row[6]][4]
        for name, info, _other, section, _value, size in _SYMBOL.iter_unpack(data[row[4] : row[4] + row[5]]):
            if name:
                found = _text(data, texts + name)
                yield Symbol(found, info >> 4, info & 0xF == _FUNCTION, section != _UNDEFINED, size)


def function_sizes(data: bytes) -> dict[str, int]:
    """Return the bytes of each function of an ELF file, or the sum for functions that share a name."""
    found: dict[str, int] = {}
    for symbol in symbols(data):
        if symbol.is_function and symbol.size:
            name = symbol.name.decode("utf-8", "replace")
            found[name] = found.get(name, 0) + symbol.size
    return found


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """Return the table of sections; empty if the data is not a little-endian ELF file of 64 bits."""
    if not data.startswith(_ELF_64_LITTLE) or len(data) < 64:
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [_SECTION.unpack_from(data, table + index * size) for index in range(count)]


def _text(data: bytes, at: int) -> bytes:
    return data[at : data.index(b"\0", at)]


def find_cuobjdump(system: System) -> Path | None:
    """Find the program in wheels of this Python, in its prefix, on PATH, or in the usual place."""
    wheels = [site / "nvidia" / name / "bin" for site in system.site_dirs for name in ("cu14", "cu13")]
    prefixes = (prefix / "bin" for prefix in system.prefixes)
    folders = (*wheels, *prefixes, *system.path_dirs, Path("/usr/local/cuda/bin"))
    return next((folder / "cuobjdump" for folder in folders if system.is_program(folder / "cuobjdump")), None)


def ask(system: System, *argv: str | Path) -> str:
    """Return a program's output; empty if the program failed, for example on code of a newer toolkit."""
    answer = system.run(tuple(map(str, argv)), timeout_s=_LONG_S)
    return answer.text if answer.returncode == 0 else ""


def readable(symbol: str) -> str:
    """Return a kernel's name in C++, without its parameters.

    Examples
    --------
    >>> readable("_Z4rowsILi4EEvPKfPf"), readable("plain")
    ('rows<4>', 'plain')
    """
    text = _demangle(symbol).replace("(anonymous namespace)", "{anonymous}").removeprefix("void ")
    return text.partition("(")[0] if symbol.startswith("_Z") else symbol


def _demangle(symbol: str) -> str:
    """Demangle a name with the Itanium ABI's function, which every process with XLA has loaded."""
    demangle = _demangler()
    if demangle is None:
        return symbol
    status, length = ctypes.c_int(), ctypes.c_size_t()
    found = demangle(symbol.encode(), None, ctypes.byref(length), ctypes.byref(status))
    if not found:
        return symbol
    try:
        return (ctypes.string_at(found) or b"").decode("utf-8", "replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)


@cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    return demangle
