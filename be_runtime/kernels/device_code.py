"""The kernels in a cubin or in PTX, with the sizes of their parameters and their limits.

A cubin is an ELF file. The section ``.nv.info.NAME`` describes the kernel NAME by attributes: one byte for the form,
one for the kind, and two for a value or for the length of the following data. The code here does not trust the file.
"""

from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from be_runtime.errors import ArgumentError, SpecError
from be_runtime.kernels.raw_compiler import entries_of, parse_name
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError

_ELF, _FATBIN = b"\x7fELF", b"\x50\xed\x55\xba"
_CUDA_MACHINE, _RELOCATABLE = 190, 1
_SECTION = "<IIQQQQIIQQ"
_SECTION_BYTES = struct.calcsize(_SECTION)
_NO_BITS = 8
_INFO, _TEXT, _CONSTANTS, _TOOL = ".nv.info.", ".text.", ".nv.constant0.", ".note.nv.tkinfo"
_ACCELERATED = 0x800
"""Flag of a cubin with ABI version 7 for an architecture with the suffix ``a``."""
_SUFFIXED = re.compile(rb"-arch sm_(\d{2,3})([af])\b")

_NO_VALUE, _SIZED = 1, 4
"""Forms of an attribute: without a value, and with data. The forms between them have one and two bytes of value."""
_MOST_THREADS, _REQUIRED_THREADS, _PARAMETER, _NEW_PARAMETER = 0x05, 0x10, 0x17, 0x45

_PTX_NOISE = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_PTX_HEAD = re.compile(r"\s*\.version\s+\d+\.\d+\s+\.target\s+sm_(\d{2,3}[af]?)\b")
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^()]*)\))?([^{};]*)[{;]")
_PTX_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d*)(?:\s+\.[a-z]+(?:\s+\d+)?)*\s+[\w$%]+\s*(?:\[\s*(\d+)\s*\])?"
)
_PTX_THREADS = re.compile(r"\.(maxntid|reqntid)\s+(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+))?")
_OPAQUE = {"texref", "samplerref", "surfref"}


class Code(NamedTuple):
    """A cubin or PTX, with the names of its kernels.

    Parameters
    ----------
    label : str
        Name in messages.
    data : bytes
    is_ptx : bool
    arch : Arch
    kernels : tuple of str
    """

    label: str
    data: bytes
    is_ptx: bool
    arch: Arch
    kernels: tuple[str, ...]


class KernelFacts(NamedTuple):
    """The facts that code states about a kernel.

    Parameters
    ----------
    sizes : tuple of int
        Bytes of each parameter.
    most_threads : int or None
        Limit for the threads of a block; None if the code has no limit.
    block : tuple of int, or None
        The block that the kernel was compiled for; None if it runs with any block.
    """

    sizes: tuple[int, ...]
    most_threads: int | None = None
    block: tuple[int, int, int] | None = None


def read_code(data: bytes, label: str) -> Code:
    """Find the architecture and the kernels in a cubin or in PTX.

    Raises
    ------
    ArgumentError
        The bytes are neither a cubin nor PTX, or are damaged.

    Examples
    --------
    >>> ptx = b".version 8.0 .target sm_90a .address_size 64 .visible .entry f(.param .u64 x) { ret; }"
    >>> code = read_code(ptx, "f.ptx")
    >>> str(code.arch), code.kernels, kernel_facts(code, "f").sizes
    ('9.0a', ('f',), (8,))
    """
    if data.startswith(_ELF):
        return _read_elf(data, label)
    if data.startswith(_FATBIN):
        raise ArgumentError(f"{label} is a fat binary", hints=("extract its cubins: cuobjdump -xelf all FILE",))
    text = _ptx_text(data)
    head = _PTX_HEAD.match(text)
    if head is None:
        raise ArgumentError(
            f"{label} is neither a cubin nor PTX: it begins with {data[:16]!r}",
            hints=("make one: nvcc -cubin -arch=sm_90 FILE.cu, or nvcc -ptx FILE.cu",),
        )
    names = tuple(dict.fromkeys(match[1] for match in _PTX_ENTRY.finditer(text)))
    return Code(label, data.rstrip(b"\0"), True, _arch(head[1], label), names)


def kernel_facts(code: Code, entry: str) -> KernelFacts:
    """Read the parameters and the block of a kernel.

    Parameters
    ----------
    code : Code
    entry : str
        One of the kernels.

    Raises
    ------
    ArgumentError
        The description of the kernel is damaged, or its form is not known.
    """
    return _ptx_facts(code, entry) if code.is_ptx else _elf_facts(code, entry)


def _arch(number: str, label: str) -> Arch:
    try:
        return Arch.parse(f"sm_{number}")
    except ArchError as error:
        raise ArgumentError(f"{label}: {error.message}") from None


def _ptx_text(data: bytes) -> str:
    return _PTX_NOISE.sub(" ", data.rstrip(b"\0").decode("latin-1"))


def _ptx_facts(code: Code, entry: str) -> KernelFacts:
    _, params, directives = next(m.groups() for m in _PTX_ENTRY.finditer(_ptx_text(code.data)) if m[1] == entry)
    words = [word.strip() for word in (params or "").split(",") if word.strip()]
    given: dict[str, tuple[int, int, int]] = {}
    for match in _PTX_THREADS.finditer(directives):
        x, y, z = (int(number or 1) for number in match.groups()[1:])
        given[match[1]] = (x, y, z)
    most = math.prod(given["maxntid"]) if "maxntid" in given else None
    return KernelFacts(tuple(_ptx_size(word, code, entry) for word in words), most, given.get("reqntid"))


def _ptx_size(word: str, code: Code, entry: str) -> int:
    match = _PTX_PARAM.fullmatch(word)
    bits = int(match[2] or 0) if match else 0
    if match is not None and match[1] in _OPAQUE:
        bits = 64
    if match is None or bits % 8 or not 8 <= bits <= 128:
        raise ArgumentError(f"{code.label}: the parameter {word!r} of {entry} is not understood")
    return bits // 8 * int(match[3] or 1)


def _damaged(label: str, problem: str) -> ArgumentError:
    return ArgumentError(f"{label} is a damaged or truncated cubin: {problem}")


def _unpack(layout: str, data: bytes, at: int, label: str) -> tuple[int, ...]:
    if not 0 <= at <= len(data) - struct.calcsize(layout):
        raise _damaged(label, f"it ends before byte {at + struct.calcsize(layout)}")
    return struct.unpack_from(layout, data, at)


def _read_elf(data: bytes, label: str) -> Code:
    kind, machine = _unpack("<HH", data, 16, label)
    if data[4:6] != b"\x02\x01" or machine != _CUDA_MACHINE:
        raise ArgumentError(
            f"{label} is an ELF file, but not a cubin: its ELF machine is {machine}, and a GPU's is 190",
            hints=("extract cubins from an object or a library: cuobjdump -xelf all FILE",),
        )
    if kind == _RELOCATABLE:
        raise ArgumentError(
            f"{label} is relocatable, so no device loads it",
            hints=("compile it without -rdc=true and -dc, or link it: nvlink",),
        )
    sections = _sections(data, label)
    names = (name.removeprefix(_INFO) for name in sections if name.startswith(_INFO))
    kernels = tuple(name for name in names if _TEXT + name in sections and _CONSTANTS + name in sections)
    return Code(label, data, False, _elf_arch(data, sections, label), kernels)


def _elf_arch(data: bytes, sections: Mapping[str, slice], label: str) -> Arch:
    """Read the architecture; a later ABI has the suffix only in the options of the tool."""
    (flags,) = _unpack("<I", data, 48, label)
    if data[8] < 8:
        return _arch(f"{flags & 0xFF}{'a' * bool(flags & _ACCELERATED)}", label)
    number = str(flags >> 8 & 0xFF)
    found = _SUFFIXED.search(data[sections.get(_TOOL, slice(0))])
    is_same = found is not None and found[1].decode() == number
    return _arch(number + (found[2].decode() if found is not None and is_same else ""), label)


def _sections(data: bytes, label: str) -> dict[str, slice]:
    """Return the places of the sections by their names."""
    segments, start = _unpack("<QQ", data, 32, label)
    segment_size, segment_count, size, count, names_at = _unpack("<5H", data, 54, label)
    if segments + segment_size * segment_count > len(data):
        raise _damaged(label, f"its segments are described from byte {segments} of {len(data)}")
    if size < _SECTION_BYTES or names_at >= count:
        raise _damaged(label, f"it has {count} sections of {size} bytes, with their names in section {names_at}")
    rows = [_unpack(_SECTION, data, start + index * size, label) for index in range(count)]
    for row in rows:
        if row[1] != _NO_BITS and row[4] + row[5] > len(data):
            raise _damaged(label, f"a section of {row[5]} bytes begins at byte {row[4]} of {len(data)}")
    text = data[rows[names_at][4] :][: rows[names_at][5]]
    found = {}
    for row in rows:
        end = text.find(b"\0", row[0])
        if end < 0:
            raise _damaged(label, f"the name of a section begins at byte {row[0]} of {len(text)}")
        found[text[row[0] : end].decode("latin-1")] = slice(row[4], row[4] + (row[5] if row[1] != _NO_BITS else 0))
    return found


def _attributes(data: bytes, label: str) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the data of each attribute."""
    at = 0
    while at < len(data):
        form, kind, value = _unpack("<BBH", data, at, label)
        if not _NO_VALUE <= form <= _SIZED:
            raise _damaged(label, f"an attribute has the form {form}")
        size = value if form == _SIZED else 0
        if at + 4 + size > len(data):
            raise _damaged(label, f"an attribute of {size} bytes ends after its section")
        yield kind, data[at + 4 : at + 4 + size]
        at += 4 + size


def _elf_facts(code: Code, entry: str) -> KernelFacts:
    label = f"{code.label}: {entry}"
    sizes: dict[int, int] = {}
    threads: dict[int, tuple[int, ...]] = {}
    for kind, body in _attributes(code.data[_sections(code.data, code.label)[_INFO + entry]], label):
        if kind in (_PARAMETER, _NEW_PARAMETER):
            _, ordinal, _, size, flags = _unpack("<IHHHH", body, 0, label)
            if ordinal in sizes:
                raise _damaged(label, f"parameter {ordinal} is described twice")
            sizes[ordinal] = size if kind == _NEW_PARAMETER else flags >> 2
        elif kind in (_MOST_THREADS, _REQUIRED_THREADS):
            threads[kind] = _unpack("<3I", body, 0, label)
    if sorted(sizes) != list(range(len(sizes))):
        raise _damaged(label, f"it describes the parameters {', '.join(map(str, sorted(sizes)))}")
    most = math.prod(threads[_MOST_THREADS]) if _MOST_THREADS in threads else None
    x, y, z = threads.get(_REQUIRED_THREADS, (0, 0, 0))
    return KernelFacts(tuple(sizes[i] for i in range(len(sizes))), most, (x, y, z) if x else None)


def choose_entry(code: Code, name: str) -> str:
    """Return the kernel of a name, in the spelling of the code or of C++.

    Raises
    ------
    ArgumentError
        No kernel matches the name, or several do.
    """
    if name in code.kernels:
        return name
    try:
        found = entries_of(code.kernels, parse_name(name))
    except SpecError:
        found = []
    if len(found) == 1:
        return found[0]
    shown = ", ".join(sorted(found or code.kernels)) or "none"
    if found:
        raise ArgumentError(f"{code.label}: {name!r} may be any of: {shown}", hints=("pass one of these names",))
    close = difflib.get_close_matches(name, code.kernels, n=1)
    raise ArgumentError(
        f"{code.label} has no kernel {name!r}; its kernels are: {shown}",
        hints=tuple(f"did you mean {each}?" for each in close),
    )
