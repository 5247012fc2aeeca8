"""NVRTC, CUDA's compiler as a library: search for it, load it, find the headers that it reads, and compile to a cubin.

nvrtc.h, https://docs.nvidia.com/cuda/nvrtc/, describes the interface. NVRTC compiles only device code and comes with
neither a host compiler nor the C++ library, so this module has the few standard headers from which kernels need types.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import BuildError
from be_runtime.store.cache import BuildOutput
from be_toolchain.arch import Arch
from be_toolchain.find.record import make_private
from be_toolchain.known.layouts import TARGETS
from be_toolchain.known.versions import version_key
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.system import System

_INTEGERS = """\
#pragma once
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
typedef long intptr_t; typedef unsigned long uintptr_t;
namespace std {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t;
using ::int32_t; using ::uint32_t; using ::int64_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t;
}
"""
_SIZES = "#pragma once\ntypedef long ptrdiff_t;\nnamespace std { using ::size_t; using ::ptrdiff_t; }\n"
HEADERS = {
    **dict.fromkeys(("cstdint", "stdint.h"), _INTEGERS),
    **dict.fromkeys(("cstddef", "stddef.h"), _SIZES),
    **dict.fromkeys(("cuda_runtime.h", "cmath", "math.h"), "#pragma once\n"),
}
"""Headers of nvcc that NVRTC lacks or does not need."""

PACKAGES = "pip install nvidia-cuda-nvrtc; with CUDA 12, nvidia-cuda-nvrtc-cu12"
"""Commands that install NVRTC."""

_COMPILE_ERROR = 6
_MISSING = re.compile(r"(?:could not|cannot) open source file \"([^\"]+)\"")


_WORD = re.compile(r"include(?:_next)?\b[ \t\v\f(]*+(?:/\*.*?\*/[ \t\v\f]*+)*+(?=([^\n]*))")
_SPACE = r"[ \t\v\f]*+"
# If a comment ends on this line, the `#` may be on an earlier one.
_DIRECTIVE = re.compile(rf"{_SPACE}(?:#|%:){_SPACE}|.*\*/{_SPACE}(?:(?:#|%:){_SPACE})?|.*\b__has_")
_NAMED = re.compile(r"<([^>]+)>|\"([^\"]+)\"")

_LARGEST_HEADER = 1 << 28


class Nvrtc(NamedTuple):
    """An NVRTC on this machine.

    Parameters
    ----------
    path : Path
        Path of the library.
    version : tuple of int
        Release, such as (13, 0).
    includes : tuple of Path
        Folders with the headers of its release.
    library : ctypes.CDLL
    """

    path: Path
    version: tuple[int, int]
    includes: tuple[Path, ...]
    library: Any


class Place(NamedTuple):
    """A possible location of an NVRTC: the library's folder, and folders that may have the headers."""

    folder: Path
    includes: tuple[Path, ...]


def places(system: System, toolkits: Sequence[Path] = ()) -> Iterator[Place]:
    """Yield possible locations, best first: this Python's wheels, its conda prefix, known toolkits, usual folders."""
    for site in system.site_dirs:
        root = site / "nvidia"
        for name in ("cu13", "cu14"):
            yield Place(root / name / "lib", (root / name / "include", root / name / "include" / "cccl"))
        wheels = tuple(root / part / "include" for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "curand"))
        yield Place(root / "cuda_nvrtc" / "lib", (root / "cuda_nvrtc" / "include", *wheels))
    targets = TARGETS.get(system.machine, ())
    prefix = system.prefixes[0]
    headers = [prefix / "targets" / target / "include" for target in targets]
    yield Place(prefix / "lib", tuple(path for each in headers for path in (each, each / "cccl")))
    for toolkit in (*toolkits, Path("/usr/local/cuda")):
        for folder in ("lib64", "lib", *(f"targets/{target}/lib" for target in targets)):
            yield Place(toolkit / folder, (toolkit / "include", toolkit / "include" / "cccl"))
    yield Place(Path(f"/usr/lib/{system.machine}-linux-gnu"), ())


def find_nvrtc(
    system: System, toolkits: Sequence[Path] = (), driver_version: str | None = None, archs: Sequence[Arch] = ()
) -> Nvrtc | None:
    """Find the first NVRTC that compiles for all of `archs` and whose major release is not newer than the driver's."""
    newest = version_key(driver_version)[0] if driver_version else None
    seen: set[Path] = set()
    for place in places(system, toolkits):
        for path in libraries(place.folder, system):
            if path in seen:
                continue
            seen.add(path)
            found = _open(path, place.includes, system)
            if found is None or (newest is not None and found.version[0] > newest):
                continue
            count = c_int()
            found.library.nvrtcGetNumSupportedArchs(byref(count))
            numbers = (c_int * count.value)()
            found.library.nvrtcGetSupportedArchs(numbers)
            if {arch.base for arch in archs} <= {Arch(number // 10, number % 10) for number in numbers}:
                return found
    return None


def libraries(folder: Path, system: System) -> list[Path]:
    """List the NVRTC libraries in a folder, the newest release first."""
    names = [name for name in system.list_dir(folder) if re.fullmatch(r"libnvrtc\.so\.\d+", name)]
    return [folder / name for name in sorted(names, key=lambda name: int(name.rsplit(".", 1)[1]), reverse=True)]


def _open(path: Path, includes: Sequence[Path], system: System) -> Nvrtc | None:
    """Open the library at a path; return None if it can't be used."""
    try:
        library = system.open_library(str(path))
        major, minor = c_int(), c_int()
        if library.nvrtcVersion(byref(major), byref(minor)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    with contextlib.suppress(OSError):
        # NVRTC opens this library by its name, so it must be on the loader's path or open already.
        system.open_library(str(path.with_name(f"libnvrtc-builtins.so.{major.value}.{minor.value}")))
    folders = tuple(folder for folder in includes if system.is_dir(folder))
    return Nvrtc(path, (major.value, minor.value), folders, library)


def header_folders(nvrtc: Nvrtc, source: str, keep_in: Path, system: System) -> tuple[Path, ...]:
    """Return the folders of the compiler's headers: headers of its release, else the headers inside NVRTC.

    Since CUDA 13.3, NVRTC has CUDA's and CCCL's headers in itself and writes them where they are wanted, in a tenth of
    a second: https://docs.nvidia.com/cuda/nvrtc/index.html#bundled-headers. Each NVRTC has a folder of its own in
    `keep_in`, which is written once, and only for a source that includes a header.

    Raises
    ------
    BuildError
        The headers can't be written.
    """
    # jax[cuda13] brings CUDA's headers, which include CCCL's nv/target, and not CCCL.
    needed = ("cuda_fp16.h", "nv/target")
    has_release = all(any(system.is_file(folder / name) for folder in nvrtc.includes) for name in needed)
    install = getattr(nvrtc.library, "nvrtcInstallBundledHeaders", None)
    if has_release or install is None or set(_included(source)[0]) <= HEADERS.keys():
        return nvrtc.includes
    digest = hashlib.sha256(f"{nvrtc.path} {system.stat(nvrtc.path)}".encode()).hexdigest()
    folder = keep_in / f"nvrtc-{nvrtc.version[0]}.{nvrtc.version[1]}-{digest[:16]}"
    if not folder.is_dir():
        new, problem = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}"), c_char_p()
        make_private(keep_in)
        status = install(bytes(new), 0, byref(problem))
        if status == 0:
            with contextlib.suppress(OSError):  # another process was first
                new.chmod(0o700)
                new.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        if status != 0 or not folder.is_dir():
            what = (problem.value or b"").decode(errors="replace") or _error_text(nvrtc, status)
            raise BuildError(f"NVRTC can't write its headers into {keep_in}: {what}")
    return (folder, folder / "cccl", *nvrtc.includes)


def find_headers(
    source: str, file_name: str, searched: Sequence[Path], includes: Sequence[Path], system: System
) -> BuildOutput:
    """Find all headers that NVRTC may read for a source, directly or indirectly: it does not report them.

    The result has the headers that exist, the paths at which a header would be read if it existed, except those below
    the compiler's own folders, and descriptions of includes that name their header by a macro. Such includes in the
    compiler's own headers are left out: they include headers of the same release.

    Parameters
    ----------
    file_name : str
        Name of the source.
    searched, includes : sequence of Path
        Folders of the author, and of the compiler.
    """
    own = tuple(f"{folder}/" for folder in includes)
    resolve = functools.cache(system.realpath)
    files: dict[Path, None] = {}
    absent: dict[Path, None] = {}
    unknown: dict[str, None] = {}
    followed: set[Path] = set()
    waiting: list[tuple[str, str, tuple[Path, ...]]] = [(source, file_name, ())]
    while waiting:
        text, where, beside = waiting.pop()
        names, macros = _included(text)
        if not where.startswith(own):
            unknown |= {f"the header that {where} names as {macro}": None for macro in macros}
        for name in names:
            folders = (Path("/"),) if name.startswith("/") else (*beside, *searched, *includes)
            for path in () if name in HEADERS else (folder / name for folder in folders):
                if path in files or path in absent:
                    continue
                content = system.read_text(path, limit_bytes=_LARGEST_HEADER)
                (absent if content is None else files)[path] = None
                # With `..`, one header may have any number of paths.
                place = resolve(path.parent) / path.name
                if content is not None and place not in followed:
                    followed.add(place)
                    waiting.append((content, str(path), (path.parent,)))
    lacking = tuple(path for path in absent if not str(path).startswith(own))
    return BuildOutput((), tuple(files), absent=lacking, unknown=tuple(unknown))


def _included(text: str) -> tuple[list[str], list[str]]:
    """Find the headers that a text includes or tests for: their names, and the macros that stand for names."""
    names, macros = [], []
    text = text.replace("\\\r\n", "").replace("\\\n", "")
    for match in _WORD.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if _DIRECTIVE.fullmatch(before) is None:
            continue
        named = _NAMED.match(match[1])
        if named is not None:
            names.append(named[1] or named[2])
        elif match[1][:1].isidentifier():
            macros.append(match[1].strip())
    return names, macros


class NvrtcProgram(NamedTuple):
    """A program compiled by NVRTC.

    Parameters
    ----------
    code : bytes
    ptx : bytes
    entry : str
        Name of the kernel in the code.
    compiler : tuple of str
        NVRTC's own description: its release, version and build.
    """

    code: bytes
    ptx: bytes
    entry: str
    compiler: tuple[str, ...]


def missing_header_hints(nvrtc: Nvrtc, log: str) -> tuple[str, ...]:
    """Return hints for a missing header: the header's wheel if NVRTC is from a wheel, else the option."""
    missing = _MISSING.search(log)
    if missing is None:
        return ()
    from be_runtime.compile.hints import wheel_of  # few compilations fail

    wheel = wheel_of(missing[1]) if nvrtc.path.parts[-4:-3] == ("nvidia",) else None
    if wheel is None:
        return ("a header was not found: name its folder in extra_include_paths",)
    major, minor = nvrtc.version
    package = wheel.cuda13 if major >= 13 else wheel.cuda12
    has_own_versions = wheel.is_library or (package == "nvidia-cuda-cccl" and (major, minor) >= (13, 3))
    release = "" if has_own_versions else f"=={major}.{minor}.*"
    return (f"pip install '{package}{release}' brings {missing[1]}",)


def compile_program(nvrtc: Nvrtc, source: str, path: Path, expression: str, options: Sequence[str]) -> NvrtcProgram:
    """Compile a source and find one of its kernels.

    Parameters
    ----------
    path : Path
        Name of the source, in the folder that its ``#include "..."`` searches first.
    expression : str
        C++ name of the kernel with template arguments.
    options : sequence of str
        nvcc's options, including the architecture.

    Raises
    ------
    BuildError
        The compilation failed; the error has NVRTC's messages.
    """
    with _LOCK, _program(nvrtc, source, path) as program:
        library = nvrtc.library
        _check(nvrtc, library.nvrtcAddNameExpression(program, expression.encode()), "nvrtcAddNameExpression")
        encoded = [option.encode() for option in options]
        status = library.nvrtcCompileProgram(program, len(encoded), (c_char_p * len(encoded))(*encoded))
        text = _text(library, "ProgramLog", program)
        log = text.rstrip(b"\0").decode(errors="replace")
        if status != 0:
            raise BuildError(
                f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]} can't compile {path.name}",
                command=("nvrtc", *options) if status == _COMPILE_ERROR else (),
                output=log,
                first_error="" if log.strip() else _error_text(nvrtc, status),
                hints=missing_header_hints(nvrtc, log),
            )
        name = c_char_p()
        status = library.nvrtcGetLoweredName(program, expression.encode(), byref(name))
        _check(nvrtc, status, f"nvrtcGetLoweredName({expression!r})")
        entry = (name.value or b"").decode()
        ptx = _text(library, "PTX", program).rstrip(b"\0")
        compiler = (f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}", *signature(ptx.decode(errors="replace")))
        return NvrtcProgram(_text(library, "CUBIN", program), ptx, entry, compiler)


def signature(ptx: str) -> tuple[str, ...]:
    r"""Return the compiler's own description in the comments at the beginning of PTX.

    Examples
    --------
    >>> signature("//\n// Compiler Build ID: CL-36424714\n//\n\n.version 9.0 // not this")
    ('Compiler Build ID: CL-36424714',)
    """
    head = itertools.takewhile(lambda line: line.startswith("//"), ptx.splitlines())
    return tuple(words for line in head if (words := line.removeprefix("//").strip()))


_LOCK = ThreadLock()
"""One compilation runs at a time: releases before 12 are not fully thread-safe."""


@contextlib.contextmanager
def _program(nvrtc: Nvrtc, source: str, path: Path) -> Iterator[c_void_p]:
    program = c_void_p()
    texts = (c_char_p * len(HEADERS))(*(text.encode() for text in HEADERS.values()))
    names = (c_char_p * len(HEADERS))(*(name.encode() for name in HEADERS))
    status = nvrtc.library.nvrtcCreateProgram(
        byref(program), source.encode("utf-8", "surrogateescape"), bytes(path), len(HEADERS), texts, names
    )
    _check(nvrtc, status, "nvrtcCreateProgram")
    try:
        yield program
    finally:
        nvrtc.library.nvrtcDestroyProgram(byref(program))


def _text(library: Any, what: str, program: c_void_p) -> bytes:
    size = c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, data)
    return data.raw


def _check(nvrtc: Nvrtc, status: int, call: str) -> None:
    if status != 0:
        raise BuildError(f"{call} failed: {_error_text(nvrtc, status)}")


def _error_text(nvrtc: Nvrtc, status: int) -> str:
    nvrtc.library.nvrtcGetErrorString.restype = c_char_p
    return str((nvrtc.library.nvrtcGetErrorString(status) or b"an unknown error").decode())
