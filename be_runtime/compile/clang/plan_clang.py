"""CUDA compiled by clang: the command for a unit, and its host side and device sides as commands of their own. Pure.

Clang's driver runs, one after the other, the front end and ptxas for each architecture, ``fatbinary``, and the host
side with the fat binary in it. The host side needs the fat binary only to embed it: it is compiled meanwhile with a
placeholder, whose section ``objcopy`` exchanges. ``fatbinary`` is ours (`be_toolchain.known.fatbin`): the wheels of
CUDA 12 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from be_runtime.compile.clang import clang_flags
from be_runtime.compile.plan.build_plan import Edge, GeneratedFile, UnitBuild
from be_runtime.compile.plan.flags import line_flags, native_flags
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import CompileOptions
from be_toolchain.arch import Arch
from be_toolchain.model import CudaToolkit

_BUILTINS = INCLUDE_DIR / "brainevent" / "detail" / "clang_cuda.h"
_STANDARD = "-std=c++17"
_ARCH, _PTX, _NO_PTX = "--cuda-gpu-arch=", "--cuda-include-ptx=", "--no-cuda-include-ptx="
_LEVELS = ("-O0", "-O1", "-O2", "-O3")
_PLACEHOLDER = "placeholder"


class Packer(NamedTuple):
    """The programs beside clang.

    Parameters
    ----------
    python : str
        Runs `fatbin`.
    fatbin : str
        The file of `be_toolchain.known.fatbin`.
    objcopy : str
        Exchanges a section of an object.
    """

    python: str
    fatbin: str
    objcopy: str


def clang_compile(
    toolkit: CudaToolkit, options: CompileOptions, archs: tuple[Arch, ...], includes: Sequence[str]
) -> tuple[str, ...]:
    """Clang's command for one author unit, up to the files.

    Parameters
    ----------
    toolkit : CudaToolkit
        One without nvcc.
    options : CompileOptions
    archs : tuple of Arch
        Machine code for each, and PTX for the highest without a suffix; an author's own architectures win.
    includes : sequence of str
        Flags for folders of headers.
    """
    flags = clang_flags.translate(options.cflags)
    argv = [str(toolkit.host_compiler.path), "-x", "cuda", f"--cuda-path={toolkit.root}", "-Wno-unknown-cuda-version"]
    if not any(flag.startswith(("-std=", "--std=")) for flag in flags):
        argv.append(_STANDARD)
    if not any(flag.startswith("-O") for flag in flags):
        argv.append(f"-O{options.optimization_level}")
    if not any(flag.startswith(_ARCH) for flag in flags):
        argv += _arch_flags(archs)
    else:
        argv.append(f"{_NO_PTX}all")
    if options.use_fast_math:
        argv += clang_flags.FAST_MATH
    own = [*native_flags(options), *line_flags(options)]
    host = [part for flag in own for part in ("-Xarch_host", flag)]
    lines = clang_flags.LINES if options.line_info else ()
    return (*argv, "-fPIC", "-fvisibility=hidden", *host, *lines, "-include", str(_BUILTINS), *includes, *flags)


def _arch_flags(archs: tuple[Arch, ...]) -> tuple[str, ...]:
    """The architectures as clang's driver takes them."""
    ordered = sorted(set(archs))
    generic = [arch for arch in ordered if not arch.suffix]
    ptx = (f"{_PTX}{generic[-1].sm}",) if generic else ()
    return (*(f"{_ARCH}{arch.sm}" for arch in ordered), f"{_NO_PTX}all", *ptx)


def split_clang(command: Sequence[str], unit: UnitFiles, ptxas: str, packer: Packer) -> UnitBuild:
    """The commands that compile one unit, host side and device sides at once.

    Parameters
    ----------
    command : sequence of str
        From `clang_compile`.
    unit : UnitFiles
    ptxas : str
        The program.
    packer : Packer
    """
    source, target = unit.source, unit.object
    archs = [flag.removeprefix(_ARCH) for flag in command if flag.startswith(_ARCH)]
    with_ptx = {flag.removeprefix(_PTX) for flag in command if flag.startswith(_PTX)}
    common, ptxas_flags = _without_driver_flags(command)
    # Both sides name static device variables after it; clang would hash its whole command line.
    common = (*common, f"-cuid={sha256(source.encode(errors='surrogateescape')).hexdigest()[:16]}")
    name = source.rpartition("/")[2]
    optimize = next((flag for flag in reversed(common) if flag in _LEVELS), "-O3")
    level = () if any(flag.startswith(("-O", "--opt-level")) or flag == "-g" for flag in ptxas_flags) else (optimize,)
    edges: list[Edge] = []
    images: list[str] = []
    for arch in dict.fromkeys(archs):
        ptx, cubin = f"{target}.{arch}.ptx", f"{target}.{arch}.cubin"
        edges.append(_device_edge(common, source, ptx, arch, name))
        edges.append(_ptxas_edge((ptxas, "-m64", *level, *ptxas_flags), ptx, cubin, arch, name))
        number = arch.removeprefix("sm_")
        images.append(f"--image3=kind=elf,sm={number},file={cubin}")
        images += [f"--image3=kind=ptx,sm={number},file={ptx}"] if arch in with_ptx else []
    fatbin, host, placeholder = f"{target}.fatbin", f"{target}.host.o", f"{target}.{_PLACEHOLDER}"
    edges.append(_host_edge(common, source, host, placeholder, name))
    made = tuple(image.rpartition("file=")[2] for image in images)
    pack = (packer.python, "-I", "-S", packer.fatbin, "--create", fatbin, *images)
    edges.append(
        Edge(pack, inputs=made, outputs=(fatbin,), description=f"packing {name} (fatbinary)", tool="fatbinary")
    )
    embed = (packer.objcopy, "--update-section", f".nv_fatbin={fatbin}", host, target)
    packing = f"packing {name} (objcopy)"
    edges.append(Edge(embed, inputs=(fatbin, host), outputs=(target,), description=packing, tool="embed"))
    return UnitBuild(unit=unit, edges=tuple(edges), files=(GeneratedFile(path=placeholder, text=_PLACEHOLDER),))


def _without_driver_flags(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command for one side, and the flags in it that are ptxas's."""
    kept: list[str] = []
    ptxas: list[str] = []
    rest = iter(command)
    for flag in rest:
        if flag == "-Xcuda-ptxas":
            ptxas += [value for value in (next(rest, None),) if value is not None]
        elif not flag.startswith((_ARCH, _PTX, _NO_PTX)):
            kept.append(flag)
    return tuple(kept), tuple(ptxas)


def _device_edge(common: tuple[str, ...], source: str, ptx: str, arch: str, name: str) -> Edge:
    depfile = f"{ptx}.d"
    side = ("--cuda-device-only", f"{_ARCH}{arch}", "-S", "-Wno-unused-command-line-argument")
    return Edge(
        argv=(*common, *side, "-MD", "-MF", depfile, source, "-o", ptx),
        inputs=(source,),
        outputs=(ptx,),
        description=f"compiling {name} for {arch}",
        tool="compile",
        depfile=depfile,
    )


def _ptxas_edge(command: tuple[str, ...], ptx: str, cubin: str, arch: str, name: str) -> Edge:
    return Edge(
        argv=(*command, "--gpu-name", arch, "--output-file", cubin, ptx),
        inputs=(ptx,),
        outputs=(cubin,),
        description=f"assembling {name} for {arch} (ptxas)",
        tool="ptxas",
    )


def _host_edge(common: tuple[str, ...], source: str, host: str, placeholder: str, name: str) -> Edge:
    depfile = f"{host}.d"
    embedded = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", placeholder)
    side = ("--cuda-host-only", "-Wno-unused-command-line-argument", *embedded)
    return Edge(
        argv=(*common, *side, "-MD", "-MF", depfile, "-c", source, "-o", host),
        inputs=(source, placeholder),
        outputs=(host,),
        description=f"compiling {name} for the host",
        tool="compile",
        depfile=depfile,
    )
