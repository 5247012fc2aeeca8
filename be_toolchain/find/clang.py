"""CUDA without nvcc: a clang, and the folder of joined CUDA 12 wheels that it compiles with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from be_toolchain import arch, errors, values
from be_toolchain.find.coherence import Rejection
from be_toolchain.find.compilers import Candidate
from be_toolchain.known import layouts, versions
from be_toolchain.machine.system import System

_FILES = {
    "ptxas": "bin/ptxas",
    "fatbinary": "bin/fatbinary",
    "libdevice": "nvvm/libdevice/libdevice.10.bc",
    "crt": "include/crt/host_config.h",
    "cudart": "include/cuda_runtime.h",
    "cccl": "include/nv/target",
    "static": "lib/libcudart_static.a",
}
"""The files that a joined folder must have."""

_OF_WHEEL = {
    "libdevice": "nvidia-cuda-nvcc-cu12",
    "crt": "nvidia-cuda-nvcc-cu12",
    "cudart": "nvidia-cuda-runtime-cu12",
    "cccl": "nvidia-cuda-cccl-cu12",
}
"""The wheel of each part that does not print its version."""


class Clang(NamedTuple):
    """A clang that compiles CUDA 12.

    Parameters
    ----------
    compiler : HostCompiler
        The clang itself.
    archs : tuple of Arch
        The architectures that it compiles for, sorted.
    """

    compiler: values.HostCompiler
    archs: tuple[arch.Arch, ...]


def judge_clang(compiler: values.HostCompiler) -> str:
    """Return the reason why a compiler can't compile CUDA 12's headers; empty when it probably can.

    Examples
    --------
    >>> from pathlib import Path
    >>> old = values.HostCompiler(Path("/bin/clang++"), family="clang", version="14.0.6", target="", found_via="PATH")
    >>> judge_clang(old)
    'clang 14.0.6 is older than clang 16, the first that compiles with the headers of CUDA 12'
    """
    named = f"{compiler.family} {compiler.version}"
    if compiler.family != "clang":
        return f"{named} does not compile CUDA, clang does"
    if "zig" in compiler.banner:
        return f"{named} is zig's, which lacks clang's CUDA headers"
    if compiler.major < layouts.MIN_CLANG_FOR_CUDA:
        least = layouts.MIN_CLANG_FOR_CUDA
        return f"{named} is older than clang {least}, the first that compiles with the headers of CUDA 12"
    return ""


def find_clang(
    system: System, compilers: Iterable[values.HostCompiler | errors.Probe]
) -> tuple[tuple[errors.Probe, ...], Clang | None]:
    """Find the first clang that compiles CUDA 12; also return every compiler that was tried.

    Parameters
    ----------
    system : System
        The machine. Each clang prints the GPUs that it supports.
    compilers : iterable of HostCompiler or Probe
        The compilers to try, best first.
    """
    probes: list[errors.Probe] = []
    for found in compilers:
        if isinstance(found, errors.Probe):
            probes.append(found)
            continue
        reason = judge_clang(found)
        archs: tuple[arch.Arch, ...] = ()
        if not reason:
            command = (str(found.path), "--target=nvptx64", "--print-supported-cpus")
            archs = versions.parse_sm_listed(system.run(command, unset=layouts.PROBE_UNSET).text)
        if not reason and archs:
            chosen = f"clang {found.version}, the first in the search order that compiles CUDA 12"
            probes.append(errors.Probe(found.found_via, str(found.path), chosen, chosen=True))
            return tuple(probes), Clang(found, archs)
        reason = reason or f"clang {found.version} was built without the target for NVIDIA GPUs"
        probes.append(errors.Probe(found.found_via, str(found.path), reason))
    return tuple(probes), None


def examine_clang_tree(system: System, candidate: Candidate, clang: Clang) -> values.CudaToolkit | Rejection:
    """Make a toolkit of a folder of joined wheels and a clang.

    Parameters
    ----------
    system : System
        The machine.
    candidate : Candidate
        The folder.
    clang : Clang
        The clang, from `find_clang`.
    """
    root = candidate.path
    files = {name: root / below for name, below in _FILES.items()}
    missing = [str(path.relative_to(root)) for path in files.values() if not system.is_file(path)]
    if missing:
        hint = f"python -m be_toolchain remove {root.parent.parent.name}, then install it again"
        return Rejection(reason=f"the CUDA 12 wheels in {root} lack {', '.join(missing)}", hint=hint)
    ptxas = str(files["ptxas"])
    answer, helped = system.run_all(((ptxas, "--version"), (ptxas, "--help")), unset=layouts.PROBE_UNSET)
    version = versions.parse_tool_version(answer.text)
    if version is None:
        return Rejection(reason=f"ptxas does not report its version ({answer.why_failed or 'unknown text'})")
    components = [values.Component("ptxas", files["ptxas"], version.version, "ptxas --version")]
    recorded = layouts.parse_dist_infos(system.list_dir(root.parent.parent))
    for name, wheel in _OF_WHEEL.items():
        source = "dist-info" if wheel in recorded else ""
        components.append(values.Component(name, files[name], recorded.get(wheel, ""), source))
    return values.CudaToolkit(
        root=root,
        release=versions.release_of(version.version),
        compiler=values.ClangCuda(host=clang.compiler),
        layout="clang",
        include_dirs=(root / "include",),
        library_dirs=(root / "lib",),
        cudart_static=files["static"],
        cudart_shared=shared if system.is_file(shared := root / "lib" / "libcudart.so.12") else None,
        ptxas=files["ptxas"],
        fatbinary=files["fatbinary"],
        libdevice=files["libdevice"],
        components=tuple(components),
        archs=tuple(sorted({*clang.archs} & {*versions.parse_sm_listed(helped.text)})),
        found_via=candidate.found_via,
    )
