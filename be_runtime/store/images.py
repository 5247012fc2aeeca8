"""Map images as libraries after checks of their hash, machine, CPU level and ELF headers.

XLA keeps each handler until the process ends, so each image is mapped once and stays mapped.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import struct
import tempfile
import time
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from be_runtime.errors import ArgumentError, LoadError
from be_runtime.store import index, manifest
from be_runtime.store.folder import make_folder
from be_toolchain.machine import local_system, trust

KEPT = 1024
"""Number of remembered checks. A check that is not remembered costs a hash."""

DEFAULT = "x86-64-v3"
"""Instruction level of exported programs on x86-64."""

_LEVELS = {
    "x86-64": frozenset(),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
}
"""Flags that each level adds to the levels before it."""

_CPUINFO = Path("/proc/cpuinfo")

_ELF64 = b"\x7fELF\x02\x01\x01"
_HEADER, _SEGMENT = "<16sHHIQQQIHHHHHH", "<2I6Q"
_SHARED, _LOAD, _DYNAMIC = 3, 1, 2
_READ_BY_LOADER = (_DYNAMIC, 6, 0x6474E552)
"""Types of segments that the dynamic loader reads: PT_DYNAMIC, PT_PHDR and PT_GNU_RELRO."""

_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MOST_SEGMENTS, _LARGEST_ALIGNMENT, _LARGEST_GAP = 128, 1 << 30, 1 << 16

_Segment = tuple[int, ...]
"""A program header: type, flags, offset, address, physical address, size in the file, size in memory, alignment."""

_END, _STRINGS, _RUN_PATHS = 0, 5, frozenset({15, 29})
"""Tags of the dynamic section: DT_NULL, DT_STRTAB, and both DT_RPATH and DT_RUNPATH."""


def is_whole(path: Path, digest: str, size: int, memory: str) -> bool:
    """Return whether a file has the given size and hash.

    Parameters
    ----------
    path : Path
    digest : str
        SHA-256 of its bytes.
    size : int
        In bytes.
    memory : str
        Folder with records of checks; it need not exist. Empty to record nothing.

    Raises
    ------
    OSError
        The file can't be read.
    """
    with trust.open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size != size:
            return False
        name = _check_name(status, path, digest)
        if memory and _is_remembered(memory, name):
            return True
        began_ns = time.time_ns()
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            return False
        is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < began_ns - manifest.RACY_MARGIN_NS
        if memory and is_settled and _check_name(os.fstat(file.fileno()), path, digest) == name:
            with contextlib.suppress(OSError):  # the next process hashes the file too
                _remember(memory, name)
    return True


def _check_name(status: os.stat_result, path: Path, digest: str) -> str:
    """Return the name of the record for a check of a file in this state."""
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, path, digest)
    return hashlib.sha256("\0".join(map(str, facts)).encode("utf-8", "surrogateescape")).hexdigest()


def _is_remembered(memory: str, name: str) -> bool:
    try:
        is_own = not trust.distrust_own_part(os.lstat(memory), os.geteuid())
    except OSError:
        return False
    return is_own and os.path.lexists(f"{memory}/{name}")


def _remember(memory: str, name: str) -> None:
    """Record a check, and delete the oldest records."""
    os.makedirs(os.path.dirname(memory), mode=0o700, exist_ok=True)
    make_folder(memory)
    os.close(os.open(f"{memory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    with os.scandir(memory) as found:
        ages = sorted((each.stat(follow_symlinks=False).st_mtime_ns, each.path) for each in found)
    for _, path in ages[:-KEPT]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def default_baseline(machine: str) -> str:
    """Return the instruction level of exported code for a machine; empty if the machine has no levels. Pure."""
    return DEFAULT if machine == "x86_64" else ""


def check_baseline(value: object, machine: str) -> str:
    """Check the name of an instruction level; the empty name means the level of every such machine. Pure.

    Raises
    ------
    ArgumentError
        The machine has no such level.
    """
    known = ("", *_LEVELS) if machine == "x86_64" else ("",)
    if value not in known:
        names = ", ".join(filter(None, known)) or "none"
        raise ArgumentError(f"baseline={value!r} is not a level of {machine}; the levels are: {names}")
    return str(value)


def required_flags(baseline: str) -> frozenset[str]:
    """Return the CPU flags of a level and all levels below it. Pure.

    Examples
    --------
    >>> sorted(required_flags("x86-64-v3") - required_flags("x86-64-v2"))[:3]
    ['abm', 'avx', 'avx2']
    """
    names = list(_LEVELS)
    at = names.index(baseline) if baseline in names else 0
    return frozenset().union(*(_LEVELS[name] for name in names[: at + 1]))


def require_machine(machine: str, where: str) -> None:
    """Check that code is for this machine.

    Raises
    ------
    LoadError
        The code is for another machine.
    """
    if machine != platform.machine():
        raise LoadError(
            f"{where} was built for {machine}, and this machine is {platform.machine()}",
            hints=(f"build it on a {platform.machine()} machine",),
        )


def require_baseline(baseline: str, where: str, cpuinfo: Path = _CPUINFO) -> None:
    """Check that this CPU has the instructions of a level.

    Raises
    ------
    LoadError
        The CPU lacks some of them, or the level is unknown.
    """
    if baseline and baseline not in _LEVELS:
        hints = ("update brainevent-toolchain here, or build it for an older level",)
        raise LoadError(
            f"{where} needs a CPU of level {baseline!r:.50}, which this release does not support", hints=hints
        )
    lacking = sorted(required_flags(baseline) - _flags(cpuinfo)) if baseline else []
    if lacking:
        raise LoadError(
            f"{where} needs a CPU of level {baseline}, and this one lacks {', '.join(lacking)}",
            hints=("build it for an older level, such as baseline='x86-64-v2' or 'x86-64'",),
        )


@lru_cache(maxsize=4)
def _flags(cpuinfo: Path) -> frozenset[str]:
    """Return the flags of the first core; every flag if the system lists none, so that no code is refused."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = (line.partition(":")[2] for line in text.splitlines() if line.startswith("flags"))
    return frozenset(next(lines, "").split()) or required_flags("x86-64-v4")


def library_problem(file: BinaryIO, machine: str) -> str:
    """Return the reason that a file is no shared library for a machine; empty if its headers are valid.

    Parameters
    ----------
    file : BinaryIO
        The whole file; it must be seekable.
    machine : str
        Machine, as returned by ``platform.machine()``.
    """
    size = file.seek(0, 2)
    file.seek(0)
    data = file.read(64)
    if len(data) < 64 or not data.startswith(_ELF64):
        return "it is not a 64-bit ELF file"
    _, kind, code, _, _, start, _, _, own, each, count, *_ = struct.unpack(_HEADER, data)
    if kind != _SHARED or code != _MACHINES.get(machine, code):
        return f"it is not a shared library for {machine}"
    if (own, each) != (64, 56) or not 0 < count <= _MOST_SEGMENTS or start + each * count > size:
        return "its ELF header is damaged"
    file.seek(start)
    segments = [*struct.iter_unpack(_SEGMENT, file.read(each * count))]
    return "" if _are_mappable(segments, size) else "its program headers are damaged"


def _are_mappable(segments: list[_Segment], size: int) -> bool:
    """Return whether segments form a library, with code and data in sequence, and one table for the loader."""
    loads = [segment for segment in segments if segment[0] == _LOAD]
    dynamic = [segment for segment in segments if segment[0] == _DYNAMIC]
    read_by_loader = [segment for segment in segments if segment[0] in _READ_BY_LOADER]
    gaps = [(after[3] - before[3] - before[6], max(2 * after[7], _LARGEST_GAP)) for before, after in pairwise(loads)]
    return (
        [load[2:4] for load in loads[:1]] == [(0, 0)]
        and all(_is_mappable(load, size) for load in loads)
        and all(0 <= gap <= most for gap, most in gaps)
        and any(load[1] & _EXECUTABLE for load in loads)
        and len(dynamic) == 1
        and any(load[1] & _WRITABLE and _holds(load, dynamic[0]) for load in loads)
        and all(any(_holds(load, segment) for load in loads) for segment in read_by_loader)
    )


def _is_mappable(load: _Segment, size: int) -> bool:
    """Return whether a segment lies inside a file of this size, at an offset that fits its address."""
    _, flags, offset, address, _, in_file, in_memory, alignment = load
    is_aligned = 0 < alignment <= _LARGEST_ALIGNMENT and alignment & (alignment - 1) == 0
    fits = in_file <= in_memory and offset + in_file <= size
    return is_aligned and fits and (address - offset) % alignment == 0 and bool(flags & _READABLE)


def _holds(load: _Segment, part: _Segment) -> bool:
    """Return whether a segment contains a part in the file, and in memory up to the end of the last page."""
    ahead = part[2] - load[2]
    is_mapped = 0 <= ahead <= load[5] - part[5] and part[3] - load[3] == ahead
    return is_mapped and ahead + part[6] <= load[6] + load[7]


def read_image(library: Path) -> bytes:
    """Read a library, without its run paths into this machine's conda environments."""
    return _without_conda_run_paths(library.read_bytes())


def _without_conda_run_paths(data: bytes) -> bytes:
    """Remove conda environments from a library's run path; other data than 64-bit ELF stays unchanged."""
    if not data.startswith(_ELF64):
        return data
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<2H", data, 0x36)
    headers = [struct.unpack_from(_SEGMENT, data, start + size * i) for i in range(count)]
    places = {row[3]: (row[2], row[5]) for row in headers if row[0] == _LOAD}
    result = bytearray(data)
    for offset, length in ((row[2], row[5]) for row in headers if row[0] == _DYNAMIC):
        rows = [struct.unpack_from("<2Q", data, offset + i) for i in range(0, length, 16)]
        address = next(value for tag, value in rows if tag == _STRINGS)
        strings = next(address - start + at for start, (at, size) in places.items() if start <= address < start + size)
        kept = [row for row in rows if row[0] not in _RUN_PATHS or _shorten_run_path(result, strings + row[1])]
        kept += [(_END, 0)] * (len(rows) - len(kept))
        struct.pack_into(f"<{2 * len(rows)}Q", result, offset, *(number for row in kept for number in row))
    return bytes(result)


def _shorten_run_path(data: bytearray, start: int) -> bool:
    """Remove conda environments from a run path in place; return whether any folder is left."""
    end = data.index(0, start)
    folders = data[start:end].decode(errors="surrogateescape").split(":")
    kept = [folder for folder in folders if not _is_of_conda(Path(folder))]
    if kept != folders:
        text = ":".join(kept).encode(errors="surrogateescape")
        # Linkers let a name that is the end of another name share its bytes: the text after the last slash stays.
        last = max(data.rfind(b"/", start, end) + 1, start + len(text))
        data[start:last] = text.ljust(last - start, b"\0")
        data[start + len(text)] = 0
    return bool(kept)


def _is_of_conda(folder: Path) -> bool:
    return folder.name == "lib" and (folder.parent / "conda-meta").is_dir()


def map_bytes(data: bytes | memoryview, digest: str, where: str) -> ctypes.CDLL:
    """Map a library from sealed memory, which nobody can change, or from a private folder if that is forbidden.

    The file's descriptor stays open, since glibc identifies libraries by name first, and a closed number is used again.

    Raises
    ------
    LoadError
        The data is no library for this machine, or another user could replace the folder for temporary files.
    """
    with contextlib.suppress(OSError, LoadError):
        descriptor = os.memfd_create(f"be-{digest[:16]}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            return map_file(f"/proc/self/fd/{descriptor}", where)
        except (OSError, LoadError):
            os.close(descriptor)  # no mapped library has its name
            raise
    above = Path(tempfile.gettempdir())
    facts = local_system.LocalSystem().folder_facts(above)
    problem = trust.distrust(above.stat(), os.geteuid()) or (facts.obstacle if facts.doubtful else "")
    if problem:
        raise LoadError(
            f"code is not written to {above}, which {problem}", hints=("name a folder of your own in TMPDIR",)
        )
    with tempfile.TemporaryDirectory(prefix="be-") as folder:  # of mode 0700
        path = Path(folder, f"{digest}.so")
        path.write_bytes(data)
        return map_file(str(path), where)


def map_file(path: str, where: str) -> ctypes.CDLL:
    """Map a file as a library, after a check of its headers."""
    try:
        with trust.open_regular(path) as file:
            problem = library_problem(file, platform.machine())
        if problem:
            raise LoadError(f"code of {where} can't be loaded: {problem}", hints=("copy, install or build it again",))
        return ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        libc = " ".join(platform.libc_ver())
        hints = (f"this machine has {libc}: build it on an older system, or in a manylinux image",)
        raise LoadError(
            f"code of {where} can't be loaded: {error}", hints=hints if "GLIBC" in str(error) else ()
        ) from error


def mapped_bytes(image: index.CodeImage, library: ctypes.CDLL, name: str, wanted: index.Demand) -> bytes:
    """Return a mapped library's bytes for an exported program, after a check of its architectures.

    Raises
    ------
    LoadError
        The library's file was removed, or the library lacks an architecture of the demand.
    """
    lacking = sorted({*wanted.archs} - {*image.archs}) if image.archs else []
    if lacking:
        raise LoadError(
            f"{name} was built ahead of time for {', '.join(image.archs)}, and not for {', '.join(lacking)}",
            hints=("build its package for these architectures", "or BE_JIT=always compiles it here"),
        )
    return library_bytes(library)


def library_bytes(library: ctypes.CDLL) -> bytes:
    """Return the bytes of a library's file.

    Raises
    ------
    LoadError
        The file was removed.
    """
    try:
        return trust.read_regular(library._name)  # noqa: SLF001 - the only record of it
    except OSError as error:
        raise LoadError(f"the code of a loaded kernel can't be read again: {error}") from error
