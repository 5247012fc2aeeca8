"""Which tools a build uses: the toolchain, the architectures, the folders of headers and libraries."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from be_toolchain import Toolchain, ToolchainRequest, resolve
from be_toolchain.arch import Arch, check_archs, parse_archs
from be_toolchain.devices import device_archs
from be_toolchain.model import CudaToolkit
from be_toolchain.system import System

from .build import flags
from .build.graph import Tools
from .errors import ArgumentError, BuildError
from .options import BuildRequest
from .settings import Settings

INCLUDE_DIR = Path(__file__).parent / "include"
"""Our headers."""


def find_ninja(system: System) -> Path:
    """The ninja program: the one of this Python environment, else PATH's.

    Raises
    ------
    BuildError
        There is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "ninja"
    found = beside if system.is_program(beside) else system.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed", hints=("pip install ninja, or conda install ninja",))
    return found


def resolve_toolchain(request: BuildRequest, system: System, record_dir: Path | None) -> Toolchain:
    """The toolchain for a request's language; a ToolchainError says what is missing."""
    return resolve(ToolchainRequest(need_cuda=request.language == "cuda"), system=system, record_dir=record_dir)


def choose_archs(
    asked: str | None,
    process_wide: Sequence[Arch],
    settings: Settings,
    toolkit: CudaToolkit,
    devices: Callable[[], Sequence[Arch]],
) -> tuple[Arch, ...]:
    """What to compile device code for: the argument, then the process's setting, the environment, the devices.

    Raises
    ------
    ArchError
        One of them is no architecture, or none that the toolkit can target.
    ArgumentError
        None was named and there is no device.
    """
    if asked is not None:
        if not isinstance(asked, str):
            raise ArgumentError(f"compute_capability must be a string such as 'sm_86', not {asked!r}")
        archs: Sequence[Arch] = parse_archs(asked)
    elif process_wide:
        archs = process_wide
    elif settings.compute_capabilities is not None:
        archs = parse_archs(settings.compute_capabilities)
    else:
        archs = devices()
    if not archs:
        raise ArgumentError(
            "no GPU is visible, so the architecture to compile for is not known",
            hints=(
                "pass compute_capability='sm_90', or call set_compute_capabilities('9.0')",
                "or set BE_COMPUTE_CAPABILITIES=9.0",
                "if there is a GPU: python -m be_toolchain doctor says why it isn't seen",
            ),
        )
    check_archs(tuple(archs), toolkit)
    return tuple(archs)


def gather_tools(
    request: BuildRequest,
    toolchain: Toolchain,
    *,
    system: System,
    settings: Settings,
    process_wide: Sequence[Arch],
    ffi_include: Path,
    record_dir: Path | None,
) -> Tools:
    """Everything that a build of the request runs and reads apart from its sources."""
    toolkit = toolchain.cuda if request.language == "cuda" else None
    cxx = toolkit.host_compiler if toolkit is not None else toolchain.cxx
    assert cxx is not None, "resolve() raises when there is no host compiler"
    archs: tuple[Arch, ...] = ()
    if toolkit is not None:
        archs = choose_archs(
            request.compute_capability,
            process_wide,
            settings,
            toolkit,
            lambda: device_archs(system, record_dir=record_dir),
        )
    folders = _cuda_folders(toolkit, system) if toolkit is not None else ((), ())
    head, tail = flags.link(cxx, toolkit, request.compile.ldflags, folders[1], system.list_dir)
    return Tools(
        cxx=cxx,
        cuda=toolkit,
        archs=archs,
        include_paths=(INCLUDE_DIR,),
        system_include_paths=folders[0],
        ffi_include=ffi_include,
        link_head=head,
        link_tail=tail,
    )


def _cuda_folders(toolkit: CudaToolkit, system: System) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Headers and libraries of CUDA's math libraries from wheels, and the toolkit's own library folders first.

    JAX's wheels bring cuBLAS and its siblings where a toolkit may have none.
    """
    major = toolkit.release.split(".")[0]
    roots = [site / "nvidia" / f"cu{major}" for site in system.site_dirs]
    if major == "12":
        roots += [site / "nvidia" / name for site in system.site_dirs for name in system.list_dir(site / "nvidia")]
    own = {toolkit.root, system.realpath(toolkit.root)}
    wheels = [root for root in roots if root not in own]
    includes = tuple(root / "include" for root in wheels if system.is_dir(root / "include"))
    libraries = tuple(root / "lib" for root in wheels if system.is_dir(root / "lib"))
    return includes, (*toolkit.library_dirs, *libraries)


def find_objcopy(compiler: Path) -> str | None:
    """The program that edits objects, best the one that belongs to the compiler."""
    prefix = compiler.name.removesuffix("g++").removesuffix("c++").removesuffix("clang++")
    names = [str(compiler.parent / f"{prefix}objcopy"), f"{prefix}objcopy", "objcopy", "llvm-objcopy"]
    return next((found for name in names if (found := shutil.which(name))), None)
