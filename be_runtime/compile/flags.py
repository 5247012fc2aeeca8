"""Commands of host compilers and linkers, made from options.

The author's flags come last and so override ours, since g++ uses the last of two flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from be_runtime.request.options import CompileOptions
from be_toolchain.named import NamedTuple
from be_toolchain.values import CudaToolkit, HostCompiler

STANDARD = "c++17"

_WHOLE_NVCC_FLAGS = (
    *("-keep", "--keep", "-save-temps", "--save-temps", "-t", "--threads", "-split-compile", "--split-compile"),
    *("-optf", "--options-file", "-M", "-MM", "-MD", "-E", "-ptx", "--ptx", "-cubin", "--cubin", "-fatbin", "--fatbin"),
    *("-dryrun", "--dryrun", "-time", "--time", "-run", "--run", "-lto", "--dlink-time-opt", "-dlto", "-rdc"),
    *("--relocatable-device-code", "-dc", "--device-c", "-ccbin", "--compiler-bindir"),
)
"""The author's flags that change nvcc's steps; with one of them, nvcc runs as one command."""

ListFolder = Callable[[Path], Sequence[str]]
"""Function that lists the names in a folder; empty if the folder does not exist."""


def link_flags(ldflags: Sequence[str], library_dirs: Sequence[Path], list_folder: ListFolder) -> tuple[str, ...]:
    """Translate ``-rpath``, ``-l`` and paths of libraries, so that both linker and loader find the libraries.

    Parameters
    ----------
    ldflags : sequence of str
        Flags of the author. An ``-rpath=`` without a folder means that the loader gets none of our folders.
    library_dirs : sequence of Path
        Folders for a ``-l`` name after the author's own ``-L`` folders, best first.
    list_folder : callable
        Function that lists a folder.

    Examples
    --------
    >>> link_flags(["-rpath=/a"], [], lambda folder: ())
    ('-Xlinker', '-rpath', '-Xlinker', '/a')
    >>> link_flags(["-lfoo", "-rpath="], [Path("/b")], lambda folder: ["libfoo.so.1"])
    ('/b/libfoo.so.1',)
    >>> link_flags(["/b/libfoo.so"], [], lambda folder: ())
    ('/b/libfoo.so', '-Xlinker', '-rpath', '-Xlinker', '/b')
    """
    is_portable = ("-rpath", "") in _options(ldflags)
    own = [Path(value) for option, value in _options(ldflags) if option == "-L"]
    found: list[str] = []
    folders: dict[str, None] = {}  # of shared libraries, searched after the author's
    for option, value in _options(ldflags):
        if option == "-rpath":
            found += rpath(value) if value else ()
        elif option == "-l" and not value.startswith(":"):
            flags = _library(value, own, library_dirs, list_folder)
            found += flags[:1] if is_portable else flags
        else:
            found.append(option + value)
            if (shared := _SHARED.fullmatch(option)) and not is_portable:
                folders[shared[1]] = None
    return (*found, *(flag for folder in folders for flag in rpath(folder)))


_SHARED = re.compile(r"(/.*(?<!/stubs))/[^/]*\.so(?:\.\d+)*", re.DOTALL)
"""The path of a shared library. A folder of stubs is only for the linker: the loader must not search it."""


def _options(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Split ``-l``, ``-L`` and ``-rpath``, in one piece or two, into (option, value); other flags are (flag, "")."""
    rest = iter(flags)
    for flag in rest:
        if flag in ("-l", "-L", "-rpath"):
            value = next(rest, None)
            yield (flag, "") if value is None else (flag, value)
        elif flag.startswith("-rpath="):
            yield "-rpath", flag.removeprefix("-rpath=")
        elif flag.startswith(("-l", "-L")):
            yield flag[:2], flag[2:]
        elif flag == "-Xlinker":
            yield flag, ""
            yield from ((value, "") for value in (next(rest, None),) if value is not None)
        else:
            yield flag, ""


def _library(name: str, own: Sequence[Path], library_dirs: Sequence[Path], list_folder: ListFolder) -> list[str]:
    """Return the flags that link the library `name`.

    ``-lcublas`` needs ``libcublas.so``, but a wheel has only ``libcublas.so.13``. The versioned file is linked instead,
    and the loader searches its folder.
    """
    for folder in dict.fromkeys((*own, *library_dirs)):
        names = list_folder(folder)
        if f"lib{name}.so" in names:
            return [f"-l{name}", *(() if folder in own else rpath(folder))]
        if f"lib{name}.a" in names:
            return [f"-l{name}"]
        versions = [version for each in names if (version := library_version(each, name)) is not None]
        if versions:
            newest = ".".join(map(str, max(versions)))
            return [str(folder / f"lib{name}.so.{newest}"), *rpath(folder)]
    return [f"-l{name}"]


def library_version(file: str, name: str) -> tuple[int, ...] | None:
    """Return the version in the file name of the shared library `name`; None for any other file."""
    match = re.fullmatch(rf"lib{re.escape(name)}\.so\.(\d+(?:\.\d+)*)", file)
    return None if match is None else tuple(map(int, match[1].split(".")))


def rpath(folder: str | Path) -> list[str]:
    """Return flags that make the loader search a folder; ``-Wl,`` would split the path at commas."""
    return ["-Xlinker", "-rpath", "-Xlinker", str(folder)]


def has_flag(flags: Sequence[str], *names: str) -> bool:
    """Return whether a flag is given, alone or with ``=`` and a value.

    Examples
    --------
    >>> has_flag(["--std=c++20"], "-std", "--std")
    True
    """
    return any(flag == name or flag.startswith(name + "=") for flag in flags for name in names)


def allows_phases(author_flags: Sequence[str]) -> bool:
    """Return whether a compiler's phases can run as separate commands with the author's flags."""
    return not has_flag(author_flags, *_WHOLE_NVCC_FLAGS)


def include_flags(first: Sequence[Path], last: Sequence[Path] = ()) -> tuple[str, ...]:
    """Write flags for folders of headers: `first` before the compiler's own folders, `last` as system headers."""
    unique = list(dict.fromkeys(first))
    rest = [folder for folder in dict.fromkeys(last) if folder not in unique]
    return tuple(
        part
        for option, folders in (("-I", unique), ("-isystem", rest))
        for path in folders
        for part in (option, str(path))
    )


def host_compile(compiler: HostCompiler, options: CompileOptions, includes: Sequence[str]) -> tuple[str, ...]:
    """Make the host compiler's command for one unit of the author, up to the files."""
    return (
        str(compiler.path),
        f"-std={STANDARD}",
        f"-O{options.optimization_level}",
        *(("-ffast-math",) if options.use_fast_math else ()),
        *native_flags(options),
        *line_flags(options),
        "-fPIC",
        "-pipe",
        "-fvisibility=hidden",
        *sanitizer_flags(options),
        *includes,
        *options.cflags,
    )


def sanitizer_flags(options: CompileOptions) -> tuple[str, ...]:
    """Return the compiler's flags for sanitizers that continue after an error; the linker needs the first flag, too.

    ThreadSanitizer always continues.

    Examples
    --------
    >>> sanitizer_flags(CompileOptions(sanitize=("undefined",)))[0]
    '-fsanitize=undefined'
    """
    if not options.sanitize:
        return ()
    recovering = ",".join(name for name in options.sanitize if name != "thread")
    recover = (f"-fsanitize-recover={recovering}",) if recovering else ()
    return (f"-fsanitize={','.join(options.sanitize)}", *recover, "-fno-omit-frame-pointer", "-g1")


def native_flags(options: CompileOptions) -> tuple[str, ...]:
    """Return the flags for code that runs on one CPU only, with the CPU's identity for the keys of objects.

    Examples
    --------
    >>> native_flags(CompileOptions(native="a1"))
    ('-march=native', '-DBE_INTERNAL_CPU=0xa1')
    """
    return ("-march=native", f"-DBE_INTERNAL_CPU=0x{options.native}") if options.native else ()


def active_flags(options: CompileOptions) -> tuple[str, ...]:
    """Return the macro for ``cuda_common.h`` if values above 0 alone are events.

    Examples
    --------
    >>> active_flags(CompileOptions(active="positive"))
    ('-DBE_ACTIVE_POSITIVE',)
    """
    return ("-DBE_ACTIVE_POSITIVE",) if options.active == "positive" else ()


_WRAPPED = (
    *("__cudaPushCallConfiguration", "cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC"),
    *(f"cudaMemcpy{kind}{ending}" for kind in ("", "2D", "ToSymbol", "FromSymbol") for ending in ("", "Async")),
    *("cudaMemset", "cudaMemsetAsync", "cudaMemset2D", "cudaMemset2DAsync", "cudaMallocAsync", "cudaFreeAsync"),
    *("cudaStreamSynchronize", "cudaEventRecord"),
)
"""Functions of ``brainevent/detail/default_stream.h``."""


def stream_wraps(options: CompileOptions) -> tuple[str, ...]:
    """Return the linker's flags that send a module's work on CUDA's default stream to our functions.

    Examples
    --------
    >>> stream_wraps(CompileOptions(default_stream="xla"))[1]
    '-Wl,--wrap=cudaLaunchKernel'
    """
    return tuple(f"-Wl,--wrap={name}" for name in _WRAPPED) if options.default_stream == "xla" else ()


def line_flags(options: CompileOptions) -> tuple[str, ...]:
    """Return the flag that gives debuggers and profilers the lines of host code.

    Examples
    --------
    >>> line_flags(CompileOptions(line_info=True))
    ('-g1',)
    """
    return ("-g1",) if options.line_info else ()


def whole_program(compiler: HostCompiler, ldflags: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that let the compiler drop unused code, if only the entry points can use the code.

    That is so for the only unit of a module without libraries of the author and without exports of its own.
    """
    is_alone = not {*ldflags} - {"-rpath=", "-ldl"}  # neither brings code that calls the module
    closed = compiler.family == "gcc" and is_alone and not any("visibility" in text for text in texts)
    return ("-fwhole-program", "-DBE_INTERNAL_WHOLE_PROGRAM") if closed else ()


_CXX_LIBRARY = "-stdlib="


def uses_libstdcxx(compiler: HostCompiler, cflags: Sequence[str]) -> bool:
    """Return whether a module uses GNU's C++ library; zig brings libc++, and clang takes it by a flag.

    Examples
    --------
    >>> gcc = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu", "PATH")
    >>> uses_libstdcxx(gcc, ["-O2"]), uses_libstdcxx(gcc, ["-stdlib=libc++"])
    (True, False)
    """
    return "zig" not in compiler.banner and not any(flag.startswith(f"{_CXX_LIBRARY}libc++") for flag in cflags)


def handler_compile(
    compiler: HostCompiler, include_paths: Sequence[Path], cflags: Sequence[str] = ()
) -> tuple[str, ...]:
    """Make the host compiler's command for the handler, with the author's choice of a C++ library."""
    return (
        str(compiler.path),
        f"-std={STANDARD}",
        "-O2",
        "-fPIC",
        "-pipe",
        "-fvisibility=hidden",
        *(flag for flag in cflags if flag.startswith(_CXX_LIBRARY)),
        *include_flags(include_paths),
    )


class LinkCommand(NamedTuple):
    """The linker's command: the arguments before and after the objects."""

    head: tuple[str, ...]
    tail: tuple[str, ...]


def link(
    compiler: HostCompiler,
    toolkit: CudaToolkit | None,
    ldflags: Sequence[str],
    library_dirs: Sequence[Path],
    list_folder: ListFolder,
) -> LinkCommand:
    """Make the command that links a library.

    Parameters
    ----------
    ldflags : sequence of str
        Flags of the author.
    library_dirs : sequence of Path
        Folders for ``-l`` names, best first.
    list_folder : callable
        Function that lists the names in a folder; empty if the folder does not exist.
    """
    head = (str(compiler.path), "-shared", "-fPIC")
    tail = ["-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL", "-Wl,-z,noexecstack"]
    if not any("sanitize" in flag for flag in ldflags):
        # A sanitizer's functions come from the process. Without a sanitizer, undefined names fail here, not at a load.
        tail.append("-Wl,-z,defs")
    tail += link_flags(ldflags, library_dirs, list_folder)
    tail += [f"-L{folder}" for folder in library_dirs]
    if toolkit is not None:
        if toolkit.cudart_static is not None:
            tail.append(str(toolkit.cudart_static))
        else:
            assert toolkit.cudart_shared is not None, "a complete toolkit has a cudart"
            tail += [str(toolkit.cudart_shared), *rpath(toolkit.cudart_shared.parent)]
        tail += ["-ldl", "-lpthread", "-lrt"]
    return LinkCommand(head=head, tail=tuple(tail))
