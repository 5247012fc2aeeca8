"""The request for a module: its values, the checks of each argument, and notes on the kernels of a call."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Literal

from be_runtime.checks import CheckedMode, Checks
from be_runtime.errors import ArgumentError
from be_runtime.signature import SourceText
from be_toolchain.arch import parse_archs
from be_toolchain.errors import ArchError
from be_toolchain.named import NamedTuple
from be_toolchain.settings import ACTIVE_EVENTS

Language = Literal["cuda", "cpp"]

ARCH_FLAGS = ("-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code")
"""nvcc's flags for the architectures of device code."""

RELAXED_CONSTEXPR = ("expt-relaxed-constexpr", "no-expt-relaxed-constexpr")
"""nvcc's flag that lets device code call constexpr functions of the host, and this package's flag for the opposite."""

_TWO_IN_ONE = (
    r"(-[^\s=,]+(?=\s+-)|-(?:I|L|l|[DU]\w+|isystem|iquote|idirafter|include|imacros|rpath|arch|gencode|std|X\w+))"
    r"\s+(\S.*)"
)
"""Two arguments in one string: an option, a space, and its value or the next option."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*(\.[A-Za-z0-9_\-]+)*")
_LONGEST_NAME = 200
"""Limit for the characters of a name: files get the name and an ending."""

_JOINED = ("-idirafter", "-isystem", "-iquote", "-rpath=", "-I", "-L")
_JOINED_FILES = ("-include=", "--pre-include=")
_SEPARATE = ("-idirafter", "-isystem", "-iquote", "-rpath", "-I", "-L")
_LONG = ("--include-path", "--system-include", "--library-path")
_FILES = ("-include", "-imacros", "--pre-include")
"""Options for files, which are searched among the headers if they are not in the caller's folder."""
_LIBRARY = re.compile(r".*\.(?:so(?:\.\d+)*|a|o)", re.DOTALL)

_CPUINFO = Path("/proc/cpuinfo")
_LABELS = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "flags", "cache size"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
        *("cpu", "isa", "uarch", "machine", "processor version"),
    }
)
"""Lines that determine the code of ``-march=native``; other lines differ between the cores of one CPU."""

_NOTES: ContextVar[list[str] | None] = ContextVar("notes of kernels", default=None)


class Unit(NamedTuple):
    """One translation unit of the author.

    Parameters
    ----------
    stem : str
        Name of the unit's files; unique in the request.
    sources : tuple of SourceText
        Sources: one for a file, one or several for an inline source.
    path : Path or None
        Absolute path of a file, which the compiler reads in place; None for an inline source.
    """

    stem: str
    sources: tuple[SourceText, ...]
    path: Path | None = None


class CompileOptions(NamedTuple):
    """Options that change the compiled library.

    Parameters
    ----------
    optimization_level : int
        0 to 3.
    use_fast_math : bool
    cflags, ldflags : tuple of str
        Flags of the author, one argument each.
    include_paths : tuple of Path
        Absolute folders of headers, searched in this order before this package's headers.
    native : str
        Identity of the only CPU that runs the host code; empty if any CPU does.
    checked : bool
        True if accesses through `BE::Tensor` are checked while the kernel runs.
    line_info : bool
        True if the library has the lines of its source, for debuggers and profilers.
    sanitize : tuple of str
        Sanitizers of the host compiler, such as ``address``.
    active : str
        Values that ``IS_ACTIVE_*`` accepts, ``nonzero`` or ``positive``; empty means the setting of the process.
    default_stream : str
        Stream of the module's work on CUDA's default stream: ``cuda`` for that stream, ``xla`` for the stream of the
        call.
    """

    optimization_level: int = 3
    use_fast_math: bool = False
    cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()
    native: str = ""
    checked: bool = False
    line_info: bool = False
    sanitize: tuple[str, ...] = ()
    active: str = ""
    default_stream: str = "cuda"

    def key_items(self) -> tuple[tuple[str, object], ...]:
        """Return the fields of a module's key; a rarely used field is in the key only if it is set.

        Examples
        --------
        >>> dict(CompileOptions(checked=True).key_items())["checked"]
        True
        """
        unset: dict[str, tuple[object, ...]] = {
            "checked": (False,),
            "line_info": (False,),
            "sanitize": ((),),
            "active": ("", "nonzero"),
            "default_stream": ("cuda",),
        }
        return tuple((name, value) for name, value in self._asdict().items() if value not in unset.get(name, ()))


class LoadOptions(NamedTuple):
    """Options that change the build and the registration of a library, but not the library.

    Parameters
    ----------
    build_directory : Path or None
        Folder for the module's entries instead of the cache.
    verbose, force_rebuild, auto_register : bool
    replace : bool
        True if the caller expects that a registered name gets new code, which the hints of the error then mention.
    target_prefix : str
        First part of the targets' names.
    jobs : int or None
        Number of compilers that run at once; None means one for each processor, as memory allows.
    allow_cuda_graph : bool
        True if a command buffer may capture the entry points.
    debug : Checks or None
        Checks of each call; None means the checks of the thread and the process.
    mode : CheckedMode or None
        The mode of this process that runs those checks.
    """

    target_prefix: str
    build_directory: Path | None = None
    verbose: bool = False
    force_rebuild: bool = False
    replace: bool = False
    auto_register: bool = True
    jobs: int | None = None
    allow_cuda_graph: bool = True
    debug: Checks | None = None
    mode: CheckedMode | None = None


class BuildRequest(NamedTuple):
    """A request for one module.

    Parameters
    ----------
    name : str
    language : {"cuda", "cpp"}
    units : tuple of Unit
        Translation units, at least one.
    functions : dict, list or None
        Functions as the author passed them; `be_runtime.signature.discovery.discover` checks them.
    compile : CompileOptions
    compute_capability : str or None
        Architectures as the author passed them; None means the present devices. Only for CUDA.
    files : tuple of (str, bytes)
        Names and contents of files that the assembler includes from its working folder.
    """

    name: str
    language: Language
    units: tuple[Unit, ...]
    functions: object
    compile: CompileOptions
    compute_capability: str | None = None
    files: tuple[tuple[str, bytes], ...] = ()


def for_sanitizers(request: BuildRequest, names: Sequence[str]) -> BuildRequest:
    """Return the request with sanitizers; the host compiler's sanitizers apply only to C++.

    Examples
    --------
    >>> request = BuildRequest("k", "cuda", (), None, CompileOptions())
    >>> for_sanitizers(request, ["address", "device"]).compile.sanitize
    ()
    """
    if not names:
        return request
    hosts = tuple(name for name in names if name != "device") if request.language == "cpp" else ()
    return request._replace(compile=request.compile._replace(sanitize=hosts, line_info=True))


def with_active(request: BuildRequest, setting: str) -> BuildRequest:
    """Return a CUDA request with the process's setting, unless the request sets the values that are events.

    Examples
    --------
    >>> request = BuildRequest("k", "cuda", (), None, CompileOptions())
    >>> with_active(request, "positive").compile.active
    'positive'
    """
    if request.language == "cpp" or request.compile.active:
        return request
    return request._replace(compile=request.compile._replace(active=setting))


def arch_flags(cflags: Sequence[str]) -> tuple[str, ...]:
    """Select an author's flags that name architectures, each with its value.

    Examples
    --------
    >>> arch_flags(["-lineinfo", "-arch", "sm_80", "-gencode=arch=compute_90,code=sm_90"])
    ('-arch sm_80', '-gencode=arch=compute_90,code=sm_90')
    """
    pairs = zip(cflags, (*cflags[1:], ""), strict=False)
    return tuple(
        f"{flag} {following}".rstrip() if flag in ARCH_FLAGS else flag
        for flag, following in pairs
        if flag.partition("=")[0] in ARCH_FLAGS
    )


def check_name(value: object, argument: str = "name") -> str:
    """Check a module's name or a target's prefix: letters, digits, ``_``, ``-`` and single dots between them."""
    if not isinstance(value, str):
        raise ArgumentError(f"{argument} must be a string, not {type(value).__name__}: {value!r}")
    if not _NAME.fullmatch(value):
        allowed = "use letters, digits, '_' and '-', with single dots between parts, such as 'my_kernels'"
        raise ArgumentError(
            f"{argument}={value!r} is not allowed",
            hints=("the name comes first, then the source" if "\n" in value else allowed,),
        )
    if len(value) > _LONGEST_NAME:
        raise ArgumentError(f"{argument} has {len(value)} characters, and {_LONGEST_NAME} are allowed")
    return value


def with_relaxed_constexpr(flags: Sequence[str]) -> tuple[str, ...]:
    """Add nvcc's flag that lets device code call constexpr host functions, as ``std::numeric_limits<T>::max()``.

    Without the flag, nvcc refuses such a call in a ``__global__`` or ``__device__`` function. In a ``__host__
    __device__`` function, it only warns. The author's ``--no-expt-relaxed-constexpr``, which nvcc does not support,
    removes the flag.

    Examples
    --------
    >>> with_relaxed_constexpr(["-DN=2"]), with_relaxed_constexpr(["--no-expt-relaxed-constexpr"])
    (('--expt-relaxed-constexpr', '-DN=2'), ())
    """
    relaxed, strict = RELAXED_CONSTEXPR
    is_strict = any(flag.lstrip("-") == strict for flag in flags)
    rest = tuple(flag for flag in flags if flag.lstrip("-") not in RELAXED_CONSTEXPR)
    return rest if is_strict else (f"--{relaxed}", *rest)


def check_flags(value: object, argument: str) -> tuple[str, ...]:
    """Check a list of command-line arguments; each stays one argument.

    Relative paths in them are relative to the process's working folder.
    """
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentError(
            f"{argument} must be a list of strings, not {type(value).__name__}: {value!r}",
            hints=(f"pass {argument}={value.split()!r}",) if isinstance(value, str) else (),
        )
    for position, flag in enumerate(value):
        if not isinstance(flag, str):
            raise ArgumentError(f"{argument}[{position}] must be a string, not {type(flag).__name__}: {flag!r}")
        if "\0" in flag:
            raise ArgumentError(f"{argument}[{position}]={flag!r} contains a null character")
        if joined := re.fullmatch(_TWO_IN_ONE, flag, re.DOTALL):
            raise ArgumentError(
                f"{argument}[{position}]={flag!r} is two arguments in one",
                hints=(f"write {joined[1]!r}, {joined[2]!r}",),
            )
    return absolute_paths(value, Path.cwd(), Path.exists) if value else ()


def check_include_paths(
    value: object, argument: str = "extra_include_paths", *, refused: str = "\n"
) -> tuple[Path, ...]:
    """Check the folders of headers and make them absolute; each must exist.

    No folder's name may have a character in `refused`. For example, no compiler can list headers below a folder with a
    line break in its name.
    """
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ArgumentError(f"{argument} must be a list of paths, not {type(value).__name__}: {value!r}")
    for position, item in enumerate(value):
        if not isinstance(item, (str, Path)):
            raise ArgumentError(f"{argument}[{position}] must be a path, not {type(item).__name__}: {item!r}")
    paths = tuple(_absolute_path(Path(item)) for item in value)
    for path in paths:
        if not path.is_dir():
            raise ArgumentError(f"{argument} names a folder that does not exist: {path}")
        odd = next((sign for sign in refused if sign in str(path)), None)
        if odd is not None:
            raise ArgumentError(
                f"{argument}: {str(path)!r} holds {odd!r}, which the compiler can't take in a folder's name",
                hints=("rename the folder, or name a symbolic link to it",),
            )
    return paths


def check_optimization_level(value: object, argument: str = "optimization_level") -> int:
    """Check an ``-O`` level."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 3:
        raise ArgumentError(f"{argument} must be an integer from 0 to 3, not {value!r}")
    return value


def check_bool(value: object, argument: str) -> bool:
    """Check that a value is True or False; other truthy or falsy values are errors."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{argument} must be True or False, not {value!r}")
    return value


def check_active(value: object, argument: str = "active") -> str:
    """Check which values are events; return an empty text for None."""
    if value is None:
        return ""
    if not isinstance(value, str) or value not in ACTIVE_EVENTS:
        raise ArgumentError(f"{argument} must be {' or '.join(map(repr, ACTIVE_EVENTS))}, not {value!r}")
    return value


def check_default_stream(value: object, argument: str = "default_stream") -> str:
    """Check the name of a stream."""
    if value not in ("cuda", "xla"):
        raise ArgumentError(f"{argument} must be 'cuda' or 'xla', not {value!r}")
    return str(value)


def check_jobs(value: object, argument: str = "ninja_workers") -> int | None:
    """Check the number of compilers that run at once, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{argument} must be a positive integer or None, not {value!r}")
    return value


def check_optional_path(value: object, argument: str) -> Path | None:
    """Check a path and make it absolute, or return None."""
    if value is None:
        return None
    if not isinstance(value, (str, Path)) or not str(value):
        raise ArgumentError(f"{argument} must be a path or None, not {value!r}")
    return _absolute_path(Path(value))


def check_path(value: object, argument: str) -> Path:
    """Check a path and make it absolute."""
    checked = check_optional_path(value, argument)
    if checked is None:
        raise ArgumentError(f"{argument} must be a path, not None")
    return checked


def _absolute_path(path: Path) -> Path:
    """Make a path absolute, without ``..``; resolve only symbolic links before a ``..``."""
    parts = path.absolute().parts
    above = max((index for index, part in enumerate(parts, start=1) if part == ".."), default=0)
    return Path(*parts[:above]).resolve().joinpath(*parts[above:]) if above else Path(*parts)


def check_arch_list(value: object, argument: str) -> str | None:
    """Join the names of architectures, or return None; ``be_toolchain.arch`` checks the names."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ArgumentError(
        f"{argument} must be a string such as '9.0', or a list of such, not {value!r}", hints=_spelling(value)
    )


def _spelling(value: object) -> tuple[str, ...]:
    """Return a hint with the correct spelling of architectures that were passed as numbers."""
    parts = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    text = ",".join(sorted(str(part) for part in parts))
    try:
        parse_archs(text)
    except ArchError:
        return ()
    return (f"write it as {text!r}",)


def absolute_paths(flags: Sequence[str], cwd: Path, exists: Callable[[Path], bool]) -> tuple[str, ...]:
    """Make the paths of folders, and of existing libraries and headers, in flags absolute.

    Parameters
    ----------
    flags : sequence of str
        Flags of a compiler or linker.
    cwd : Path
        Folder that relative paths refer to.
    exists : callable
        Function that returns whether a file exists.

    Examples
    --------
    >>> absolute_paths(["-Iinclude", "-L", ".", "-DX=-Iy", "-rpath=$ORIGIN"], Path("/a"), lambda path: False)
    ('-I/a/include', '-L', '/a', '-DX=-Iy', '-rpath=$ORIGIN')
    >>> absolute_paths(["-Xcompiler", "-isystem,/b"], Path("/a"), lambda path: False)
    ('-Xcompiler', '-isystem,/b')
    """
    found: list[str] = []
    for index, flag in enumerate(flags):
        before = flags[index - 1] if index else ""
        if before in (*_SEPARATE, *_LONG):
            found.append(_absolute_value(flag, cwd))
        elif before in _FILES or (_LIBRARY.fullmatch(flag) and not flag.startswith("-")):
            found.append(_absolute_value(flag, cwd) if exists(cwd / flag) else flag)
        elif flag.startswith(_JOINED_FILES):
            option, _, value = flag.partition("=")
            found.append(f"{option}={_absolute_value(value, cwd) if exists(cwd / value) else value}")
        else:
            found.append(_joined(flag, cwd))
    return tuple(found)


def _joined(flag: str, cwd: Path) -> str:
    for option in (*(f"{option}=" for option in _LONG), *_JOINED):
        value = flag.removeprefix(option)
        if value not in (flag, ""):
            return option + _absolute_value(value, cwd)
    return flag


def _absolute_value(value: str, cwd: Path) -> str:
    """Make a path absolute, unless it is absolute, or relative to the loaded library.

    A leading ``=`` belongs to the option, or stands for the sysroot, which is empty by default. A leading comma
    precedes nvcc's next flag for the host compiler.
    """
    if value[:1] == "=" and value[1:2] not in ("", "="):
        return f"={_absolute_value(value[1:], cwd)}"
    return value if not value or value[0] in "/$=-," else str(cwd / value)


@lru_cache(maxsize=1)
def identify_cpu(path: Path = _CPUINFO) -> str:
    """Hash the kind and the instructions of the first core, once: Linux may take 10 ms to list them.

    Raises
    ------
    ArgumentError
        The system does not name its CPU.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _unknown(f"{path}: {error.strerror}") from None
    pairs = [line.partition(":") for line in text.partition("\n\n")[0].splitlines()]
    known = sorted((label.strip(), value.strip()) for label, _, value in pairs if label.strip() in _LABELS)
    if not known:
        raise _unknown(f"{path} names none")
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _unknown(reason: str) -> ArgumentError:
    return ArgumentError(
        f"native=True needs the name of this machine's CPU, and {reason}",
        hints=("name the instructions instead, as in extra_cflags=['-march=x86-64-v3']",),
    )


@contextlib.contextmanager
def noting() -> Iterator[list[str]]:
    """Collect this thread's notes of kernels in a list until the context ends.

    Examples
    --------
    >>> with noting() as notes:
    ...     note("a kernel")
    >>> notes
    ['a kernel']
    """
    notes: list[str] = []
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def note(text: str) -> None:
    """Add a note about a kernel to the list of the enclosing `noting`."""
    notes = _NOTES.get()
    if notes is not None:
        notes.append(text)
