"""The tools of a build: compilers, architectures, folders of headers and libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from be_runtime.errors import ArgumentError, warn_caller
from be_runtime.request.options import BuildRequest, arch_flags
from be_runtime.settings import Settings
from be_toolchain import Toolchain, arch, values
from be_toolchain.find.record import device_archs
from be_toolchain.known.layouts import CUDA12_PARTS, PIP_ROOTS
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple

_ON_PATH = ("as", "ld", "ld.gold", "ld.lld", "ld.mold")

_GENERIC = arch.Arch(7, 5)
"""The first architecture with all commonly used features of CUDA's headers; CUDA 12 and 13 support it."""


class BuildTools(NamedTuple):
    """The programs and files of a build, apart from the author's sources.

    Parameters
    ----------
    cxx : HostCompiler
    cuda : CudaToolkit or None
        CUDA toolkit; None for a C++ module.
    archs : tuple of Arch
        Architectures of device code; empty for a C++ module.
    ffi_include : Path
        Folder of XLA's headers.
    programs : tuple of str
        Assembler and linkers on PATH, for compilers that search it.
    library_includes, library_dirs : tuple of Path
        Folders of CUDA's math libraries, which the toolkit may lack. They are searched last.
    """

    cxx: values.HostCompiler
    cuda: values.CudaToolkit | None
    archs: tuple[arch.Arch, ...]
    ffi_include: Path
    programs: tuple[str, ...] = ()
    library_includes: tuple[Path, ...] = ()
    library_dirs: tuple[Path, ...] = ()

    def key_fields(self) -> tuple[str, ...]:
        """Return the tools' fields of a key, without the toolchain's fields, the architectures and XLA."""
        folders = (*self.library_includes, *self.library_dirs)
        return (str(self.cxx.path), *self.programs, *map(str, folders))


def wanted_archs(
    asked: str | None,
    process_wide: Sequence[arch.Arch],
    settings: Settings,
    devices: Callable[[], Sequence[arch.Arch]],
) -> tuple[arch.Arch, ...]:
    """Return the architectures from the first source that names any: argument, process, environment, devices.

    Raises
    ------
    ArchError
        A name is not an architecture.
    """
    if asked is not None:
        return arch.parse_archs(asked)
    if process_wide:
        return tuple(process_wide)
    if settings.compute_capabilities is not None:
        return arch.parse_archs(settings.compute_capabilities)
    return tuple(devices())


def no_architecture(consequence: str) -> ArgumentError:
    """Make the error for a missing architecture, with hints to name one; a warning uses its text.

    Parameters
    ----------
    consequence : str
        Consequence of the missing architecture, for the message.
    """
    return ArgumentError(
        f"no GPU is visible, so {consequence}",
        hints=(
            "compute_capability='sm_90', set_compute_capabilities('9.0') or BE_COMPUTE_CAPABILITIES=9.0 names one",
            "if there is a GPU: python -m be_toolchain doctor prints why it isn't found",
        ),
    )


def choose_archs(
    asked: str | None,
    process_wide: Sequence[arch.Arch],
    settings: Settings,
    toolkit: values.CudaToolkit,
    devices: Callable[[], Sequence[arch.Arch]],
) -> tuple[arch.Arch, ...]:
    """Return the requested architectures of device code; without any, warn, and return one that most GPUs run.

    Raises
    ------
    ArchError
        A name is not an architecture, or the toolkit can't target it.
    """
    archs = wanted_archs(asked, process_wide, settings, devices)
    if not archs:
        generic = max(_GENERIC, min(toolkit.archs, default=_GENERIC))
        known = no_architecture(f"CUDA code is compiled for {generic.sm}, and to PTX for newer GPUs")
        warn_caller("\n".join((known.message, *(f"hint: {hint}" for hint in known.hints))))
        return (generic,)
    values.check_archs(archs, toolkit)
    return archs


def archs_of_flags(flags: Sequence[str], otherwise: Callable[[], tuple[arch.Arch, ...]]) -> tuple[arch.Arch, ...]:
    """Return the architectures for which nvcc compiles device code under an author's flags.

    Parameters
    ----------
    flags : sequence of str
        Flags that name architectures.
    otherwise : callable
        Function that returns the requested architectures, for flags without a number, such as ``-arch=native``.

    Examples
    --------
    >>> [arch.sm for arch in archs_of_flags(["-gencode=arch=compute_80,code=[sm_90,sm_90a]"], tuple)]
    ['sm_90', 'sm_90a']
    """
    codes = " ".join(flag.partition(",code=")[2] or flag for flag in flags)
    named = re.findall(r"\b(?:sm|compute|lto)_(\d+[af]?)\b", codes)
    return arch.parse_archs(",".join(named)) if named else otherwise()


def gather_tools(
    request: BuildRequest,
    toolchain: Toolchain,
    *,
    system: System,
    settings: Settings,
    process_wide: Sequence[arch.Arch],
    ffi_include: Path,
    record_dir: Path | None,
) -> BuildTools:
    """Gather the programs and files of a request's build, apart from its sources."""
    if request.language == "cpp":
        assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
        return BuildTools(cxx=toolchain.cxx, cuda=None, archs=(), ffi_include=ffi_include, programs=_programs(system))
    toolkit = toolchain.cuda
    assert toolkit is not None, "resolve() raises when there is no CUDA toolkit"

    devices = partial(device_archs, system, record_dir)
    if named := arch_flags(request.compile.cflags):
        archs = archs_of_flags(named, lambda: wanted_archs(None, process_wide, settings, devices))
    else:
        archs = choose_archs(request.compute_capability, process_wide, settings, toolkit, devices)
    wheels = _wheel_roots(toolkit, system)
    return BuildTools(
        cxx=toolkit.host_compiler,
        cuda=toolkit,
        archs=archs,
        ffi_include=ffi_include,
        programs=_programs(system),
        library_includes=tuple(path for root in wheels if system.is_dir(path := root / "include")),
        library_dirs=tuple(path for root in wheels if system.is_dir(path := root / "lib")),
    )


def _programs(system: System) -> tuple[str, ...]:
    """List the programs on PATH that gcc and clang run: https://gcc.gnu.org/onlinedocs/gcc/Environment-Variables.html."""
    folders = system.environ.get("PATH", "").split(os.pathsep)
    paths = (f"{folder}/{name}" for name in _ON_PATH for folder in folders)
    return tuple(path for path in paths if os.access(path, os.X_OK))


def _wheel_roots(toolkit: values.CudaToolkit, system: System) -> list[Path]:
    """List the folders of CUDA's libraries in wheels: JAX installs some, such as cuBLAS, that a toolkit may lack."""
    major = toolkit.release.split(".")[0]
    roots = [site / "nvidia" / f"cu{major}" for site in system.site_dirs]
    if major == "12":
        own = {Path(part).name for part in (*CUDA12_PARTS, *PIP_ROOTS)}
        names = [(site, name) for site in system.site_dirs for name in system.list_dir(site / "nvidia")]
        roots += [site / "nvidia" / name for site, name in names if name not in own]
    return [root for root in roots if root != toolkit.root]
