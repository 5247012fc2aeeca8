"""CUDA compiled by clang: translate nvcc's flags, and run the commands of the host and device sides in parallel."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.execute import find_objcopy
from be_runtime.compile.flags import active_flags, line_flags, native_flags
from be_runtime.compile.plan import BuildOrder, Edge, GeneratedFile, UnitBuild, UnitFiles
from be_runtime.errors import ArgumentError
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import CompileOptions
from be_toolchain.arch import Arch
from be_toolchain.known import fatbin
from be_toolchain.values import CudaToolkit

FAST_MATH = (
    "-fcuda-approx-transcendentals",
    "-fcuda-flush-denormals-to-zero",
    *("-mllvm", "-nvptx-prec-divf32=0", "-mllvm", "-nvptx-prec-sqrtf32=0"),
)
"""Equivalent of nvcc's ``--use_fast_math``. Unlike clang's ``-ffast-math``, it keeps NaN and infinity."""

_DEVICE, _HOST, _PTXAS = "-Xarch_device", "-Xarch_host", "-Xcuda-ptxas"

_NEEDLESS = frozenset(
    (
        *("expt-relaxed-constexpr", "no-expt-relaxed-constexpr", "extended-lambda", "expt-extended-lambda"),
        *("allow-unsupported-compiler", "display-error-number", "generate-dependencies-with-compile"),
    )
)
"""Nvcc's flags without effect here: clang always does the same, or lacks the feature."""

_NEEDLESS_WITH_VALUE = frozenset(("Xcudafe", "cudafe-options", "diag-suppress", "t", "threads", "split-compile"))
"""Nvcc's options with a value that have no effect here: they concern its front end, or divide its work."""

LINES = (_DEVICE, "-gline-tables-only", _PTXAS, "-lineinfo")
"""Equivalent of nvcc's ``-lineinfo``."""

_SWITCHES: dict[str, tuple[str, ...]] = {
    "use_fast_math": FAST_MATH,
    **dict.fromkeys(("lineinfo", "generate-line-info"), LINES),
    **dict.fromkeys(("G", "device-debug"), (_DEVICE, "-g", "--cuda-noopt-device-debug", _PTXAS, "-g")),
    "debug": ("-g",),
    **dict.fromkeys(("res-usage", "resource-usage"), (_PTXAS, "-v")),
    "disable-warnings": ("-w",),
}

_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "ftz": {"true": ("-fcuda-flush-denormals-to-zero",), "false": ()},
    "prec-div": {"true": (), "false": ("-mllvm", "-nvptx-prec-divf32=1")},
    "prec-sqrt": {"true": (), "false": ("-mllvm", "-nvptx-prec-sqrtf32=0")},
    "fmad": {"true": (), "false": (_DEVICE, "-ffp-contract=off")},
    "default-stream": {"legacy": (), "null": ()},
    "rdc": {"false": ()},
    "relocatable-device-code": {"false": ()},
    "Werror": {
        "all-warnings": ("-Werror",),
        "cross-execution-space-call": (),
        "deprecated-declarations": ("-Werror=deprecated-declarations",),
        "reorder": ("-Werror=reorder",),
    },
}

_RENAMED: dict[str, str] = {
    "include-path": "-I",
    "system-include": "-isystem",
    "define-macro": "-D",
    "undefine-macro": "-U",
    "pre-include": "-include",
    "std": "-std=",
    "optimize": "-O",
}
"""Nvcc's long options, and the spelling that every compiler accepts."""

_LISTS = {"Xptxas": _PTXAS, "ptxas-options": _PTXAS, "Xcompiler": _HOST, "compiler-options": _HOST}
"""Options whose comma-separated words go to another program."""

_REGISTERS = frozenset(("maxrregcount",))
_ARCHS = frozenset(("arch", "gpu-architecture", "gencode", "generate-code"))

_REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("rdc", "relocatable-device-code", "dc", "device-c", "dlto", "lto", "dlink-time-opt"),
        "relocatable device code needs nvlink, which the CUDA 12 wheels lack",
    ),
    **dict.fromkeys(("ccbin", "compiler-bindir"), "clang compiles both sides; BE_CXX names another clang"),
    **dict.fromkeys(("code", "gpu-code"), "use compute_capability= instead"),
    **dict.fromkeys(("default-stream",), "clang has no default stream for each thread; use the stream argument"),
    **dict.fromkeys(
        ("keep", "save-temps", "ptx", "cubin", "fatbin", "optf", "options-file", "dryrun", "run", "Xnvlink", "Xfatbin"),
        "it changes the output of nvcc",
    ),
}

_BUILTINS = INCLUDE_DIR / "brainevent" / "detail" / "clang_cuda.h"
_STANDARD = "-std=c++17"
_ARCH, _PTX, _NO_PTX = "--cuda-gpu-arch=", "--cuda-include-ptx=", "--no-cuda-include-ptx="
_LEVELS = ("-O0", "-O1", "-O2", "-O3")
_PLACEHOLDER = "placeholder"
_QUIET = "-Wno-unused-command-line-argument"

_TAKES_VALUE = frozenset((*_NEEDLESS_WITH_VALUE, *_VALUES, *_RENAMED, *_LISTS, *_REGISTERS, *_ARCHS))


def translate(flags: Sequence[str]) -> tuple[str, ...]:
    """Translate nvcc's flags for clang; flags that nvcc shares with other compilers stay.

    Parameters
    ----------
    flags : sequence of str
        Flags for nvcc.

    Raises
    ------
    ArgumentError
        A flag has no counterpart, or a value that nvcc does not accept.

    Examples
    --------
    >>> translate(["-maxrregcount=64", "-Xcompiler", "-march=native", "--expt-relaxed-constexpr", "-DN=2"])
    ('-Xcuda-ptxas', '--maxrregcount=64', '-Xarch_host', '-march=native', '-DN=2')
    """
    found: list[str] = []
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.lstrip("-").partition("=")
        if not flag.startswith("-"):
            found.append(flag)
        elif name in _TAKES_VALUE and not flag.startswith("-std="):
            found += _with_value(flag, name, value if equals else next(rest, ""))
        elif name in _NEEDLESS:
            continue
        elif name in _SWITCHES:
            found += _SWITCHES[name]
        elif name in _REFUSED:
            raise _refused(flag, name)
        else:
            found.append(flag)
    return tuple(found)


def _with_value(flag: str, name: str, value: str) -> Iterator[str]:
    """Translate an option of nvcc with a value."""
    if name in _LISTS:
        try:
            words = shlex.split(value.replace(",", " "))  # nvcc passes the words to a shell
        except ValueError:
            raise _refused(flag, name) from None
        for word in words:
            yield from (_LISTS[name], word)
    elif name in _RENAMED:
        option = _RENAMED[name]
        yield from (f"{option}{value}",) if option in {"-std=", "-O"} else (option, value)
    elif name in _REGISTERS:
        yield from (_PTXAS, f"--maxrregcount={value}")
    elif name in _ARCHS:
        yield from _archs(flag, value)
    elif name in _VALUES:
        if value not in _VALUES[name]:
            raise _refused(flag, name)
        yield from _VALUES[name][value]


def _archs(flag: str, value: str) -> Iterator[str]:
    """Translate the architectures of ``-arch=sm_90`` or ``-gencode=arch=compute_90,code=[sm_90,compute_90]``."""
    codes = re.findall(r"\b(sm|compute)_(\d+[af]?)\b", value.partition("code=")[2] or value)
    if not codes:
        raise _refused(flag, "code")
    for number in dict.fromkeys(number for _, number in codes):
        yield f"--cuda-gpu-arch=sm_{number}"
    for kind, number in codes:
        if kind == "compute":
            yield f"--cuda-include-ptx=sm_{number}"


def _refused(flag: str, name: str) -> ArgumentError:
    """Make the error for a flag without a counterpart."""
    reason = _REFUSED.get(name, "nvcc does not accept its value")
    return ArgumentError(
        f"extra_cuda_cflags contains {flag!r}, and clang compiles CUDA here: {reason}",
        hints=("leave it out, or use a toolkit with nvcc: python -m be_toolchain doctor lists the toolkits",),
    )


class ClangCompiler(NamedTuple):
    """Clang's toolkit without nvcc, and its architectures; see `be_runtime.compile.graph.CudaCompiler`."""

    toolkit: CudaToolkit
    archs: tuple[Arch, ...]

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Return clang with its flags: machine code for each architecture, and PTX for the highest without a suffix.

        Raises
        ------
        ArgumentError
            An author's flag has no counterpart.
        """
        toolkit, flags = self.toolkit, translate(options.cflags)
        argv = [str(toolkit.host_compiler.path), "-x", "cuda", f"--cuda-path={toolkit.root}"]
        argv.append("-Wno-unknown-cuda-version")
        if not any(flag.startswith(("-std=", "--std=")) for flag in flags):
            argv.append(_STANDARD)
        if not any(flag.startswith("-O") for flag in flags):
            argv.append(f"-O{options.optimization_level}")
        if any(flag.startswith(_ARCH) for flag in flags):
            argv.append(f"{_NO_PTX}all")
        else:
            ordered = sorted(set(self.archs))
            generic = [arch for arch in ordered if not arch.suffix]
            argv += [*(f"{_ARCH}{arch.sm}" for arch in ordered), f"{_NO_PTX}all"]
            argv += [f"{_PTX}{generic[-1].sm}"] if generic else []
        if options.use_fast_math:
            argv += FAST_MATH
        host = [part for flag in (*native_flags(options), *line_flags(options)) for part in (_HOST, flag)]
        lines = LINES if options.line_info else ()
        ours = (*host, *lines, *active_flags(options), "-include", str(_BUILTINS))
        return (*argv, "-fPIC", "-fvisibility=hidden", *ours, *includes, *flags)

    def device_link(self, _options: CompileOptions, /) -> None:
        """Return None, since an author's flag for relocatable device code is an error."""

    def phases(self, command: Sequence[str], unit: UnitFiles, order: BuildOrder, /) -> UnitBuild | None:
        """Return the commands of both sides; None without objcopy, which joins the sides."""
        objcopy = find_objcopy(self.toolkit.host_compiler.path, order.system)
        if objcopy is None:
            return None
        return split_clang(command, unit, str(self.toolkit.ptxas), Packer(sys.executable, fatbin.__file__, objcopy))

    def preamble(self, _command: Sequence[str], _order: BuildOrder, /) -> None:
        """Return None, since clang's two sides share no preprocessed text."""

    def phase_inputs(self) -> tuple[Path, ...]:
        """Return no files, since only clang's command determines the phases."""
        return ()


class Packer(NamedTuple):
    """The programs that put device code into an object.

    Parameters
    ----------
    python : str
        Program that runs `fatbin`.
    fatbin : str
        File of `be_toolchain.known.fatbin`.
    objcopy : str
        Program that replaces a section of an object.
    """

    python: str
    fatbin: str
    objcopy: str


def split_clang(command: Sequence[str], unit: UnitFiles, ptxas: str, packer: Packer) -> UnitBuild:
    """Return the commands that compile one unit, with the host and device sides in parallel.

    Parameters
    ----------
    command : sequence of str
        Command from `ClangCompiler.command`.
    unit : UnitFiles
    ptxas : str
        Path of the program.
    packer : Packer
    """
    source, target = unit.source, unit.object
    archs = [flag.removeprefix(_ARCH) for flag in command if flag.startswith(_ARCH)]
    with_ptx = {flag.removeprefix(_PTX) for flag in command if flag.startswith(_PTX)}
    common, ptxas_flags = _without_driver_flags(command)
    # Both sides name static device variables after this id; by default, clang hashes its whole command line.
    common = (*common, f"-cuid={sha256(source.encode(errors='surrogateescape')).hexdigest()[:16]}")
    name = source.rpartition("/")[2]
    optimize = next((flag for flag in reversed(common) if flag in _LEVELS), "-O3")
    level = () if any(flag.startswith(("-O", "--opt-level")) or flag == "-g" for flag in ptxas_flags) else (optimize,)
    edges: list[Edge] = []
    images: list[str] = []
    for arch in dict.fromkeys(archs):
        ptx, cubin = f"{target}.{arch}.ptx", f"{target}.{arch}.cubin"
        device = (*common, "--cuda-device-only", f"{_ARCH}{arch}", "-S", _QUIET)
        edges.append(_compile_side(device, (source,), (source,), ptx, f"{name} for {arch}"))
        assemble = (ptxas, "-m64", *level, *ptxas_flags, "--gpu-name", arch, "--output-file", cubin, ptx)
        edges.append(Edge(assemble, (ptx,), (cubin,), f"assembling {name} for {arch} (ptxas)", "ptxas"))
        number = arch.removeprefix("sm_")
        images.append(f"--image3=kind=elf,sm={number},file={cubin}")
        images += [f"--image3=kind=ptx,sm={number},file={ptx}"] if arch in with_ptx else []
    fatbin, host, placeholder = f"{target}.fatbin", f"{target}.host.o", f"{target}.{_PLACEHOLDER}"
    # The placeholder is embedded first. When the device code is ready, objcopy replaces the placeholder.
    embedded = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", placeholder)
    whole = (*common, "--cuda-host-only", _QUIET, *embedded)
    edges.append(_compile_side(whole, ("-c", source), (source, placeholder), host, f"{name} for the host"))
    made = tuple(image.rpartition("file=")[2] for image in images)
    pack = (packer.python, "-I", "-S", packer.fatbin, "--create", fatbin, *images)
    edges.append(Edge(pack, made, (fatbin,), f"packing {name} (fatbinary)", "fatbinary"))
    embed = (packer.objcopy, "--update-section", f".nv_fatbin={fatbin}", host, target)
    edges.append(Edge(embed, (fatbin, host), (target,), f"packing {name} (objcopy)", "embed"))
    return UnitBuild(unit=unit, edges=tuple(edges), files=(GeneratedFile(path=placeholder, text=_PLACEHOLDER),))


def _without_driver_flags(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command for one side, and ptxas's flags apart."""
    kept: list[str] = []
    ptxas: list[str] = []
    rest = iter(command)
    for flag in rest:
        if flag == "-Xcuda-ptxas":
            ptxas += [value for value in (next(rest, None),) if value is not None]
        elif not flag.startswith((_ARCH, _PTX, _NO_PTX)):
            kept.append(flag)
    return tuple(kept), tuple(ptxas)


def _compile_side(command: Sequence[str], last: Sequence[str], inputs: tuple[str, ...], output: str, what: str) -> Edge:
    """Make the command that compiles one side; `last` has its final arguments before the output."""
    depfile = f"{output}.d"
    argv = (*command, "-MD", "-MF", depfile, *last, "-o", output)
    return Edge(argv, inputs, (output,), f"compiling {what}", "compile", depfile)
