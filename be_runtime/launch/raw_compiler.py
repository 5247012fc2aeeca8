"""A raw kernel becomes machine code: by NVRTC where there is one, else by nvcc."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from be_toolchain import ToolchainRequest, probe_devices, resolve
from be_toolchain.arch import Arch, check_archs
from be_toolchain.errors import ToolchainError
from be_toolchain.model import CudaToolkit, Toolchain
from be_toolchain.system import System

from ..build.execute import execute
from ..build.plan import BuildPlan, Edge, GeneratedFile
from ..build.programs import resolve_ninja
from ..build.progress import Progress
from ..cache import CacheKey, make_key
from ..errors import BuildError
from ..identity import generator_digest
from ..pipeline import Session
from . import nvrtc
from .describe import Image
from .images import Compiled
from .raw_source import RawKernel, entry_in_cubin, included_files, instantiated


def raw_key(kernel: RawKernel, archs: Sequence[Arch], session: Session) -> CacheKey:
    """The key of a compiled kernel.

    Finding the key opens no compiler: the NVRTC libraries that may be used are known by their files. Where none of them
    serves, the compiler that did is among the files that the entry depends on.
    """
    compilers = [_file_text(path, session.system) for path in _candidates(session.system)]
    if not compilers:
        compilers = [part for pair in _toolchain(session).key_fields() for part in pair]
    return make_key(
        "kernel",
        ("name", kernel.name.base),
        ("source", kernel.source),
        ("expression", kernel.name.expression),
        ("options", kernel.options()),
        ("archs", [arch.sm for arch in archs]),
        ("compilers", compilers),
        ("generator", generator_digest()),
    )


def compile_raw(kernel: RawKernel, archs: Sequence[Arch], session: Session, staging: Path) -> Compiled:
    """Compile a kernel for each architecture.

    Raises
    ------
    BuildError
        It doesn't compile.
    ToolchainError
        There is neither NVRTC nor nvcc.
    """
    system = session.system
    dependencies = included_files(kernel.source, kernel.include_paths, system.read_text)
    driver = probe_devices(system).driver_version
    found = nvrtc.find_nvrtc(system, (), driver, archs)
    if found is None:
        found = _nvrtc_of_toolkit(session, driver, archs)
        dependencies += (found.path,) if found is not None else ()
    if found is not None:
        return Compiled(tuple(_by_nvrtc(kernel, arch, found) for arch in archs), dependencies)
    toolkit = _nvcc_toolkit(session, archs)
    images = _by_nvcc(kernel, archs, toolkit, session, staging)
    return Compiled(images, (*dependencies, *filter(None, (toolkit.nvcc, toolkit.cicc, toolkit.ptxas))))


def _candidates(system: System) -> list[Path]:
    """The NVRTC libraries in the places that need no search."""
    return [path for place in nvrtc.places(system) for path in nvrtc.libraries(place.folder, system)]


def _file_text(path: Path, system: System) -> str:
    stamp = system.stat(path)
    return f"{path} {stamp}"


def _nvrtc_of_toolkit(session: Session, driver: str | None, archs: Sequence[Arch]) -> nvrtc.Nvrtc | None:
    """The NVRTC beside the toolkit that a search finds; None where there is no toolkit, or it has none."""
    try:
        cuda = _toolchain(session).cuda
    except ToolchainError:
        return None
    return None if cuda is None else nvrtc.find_nvrtc(session.system, (cuda.root,), driver, archs)


def _toolchain(session: Session) -> Toolchain:
    return resolve(ToolchainRequest(need_cuda=True), system=session.system, record_dir=session.record_dir)


def _by_nvrtc(kernel: RawKernel, arch: Arch, found: nvrtc.Nvrtc) -> Image:
    includes = [f"-I{folder}" for folder in found.includes]
    options = (f"--gpu-architecture={arch.sm}", *kernel.options(), *includes)
    try:
        made = nvrtc.compile_program(found, kernel.source, kernel.file_name, kernel.name.expression, options)
    except BuildError as error:
        raise _explained(error, kernel) from None
    return Image(arch, made.entry, made.code)


def _nvcc_toolkit(session: Session, archs: Sequence[Arch]) -> CudaToolkit:
    """The toolkit whose nvcc compiles for the architectures."""
    toolkit = _toolchain(session).cuda
    assert toolkit is not None, "resolve() raises when there is no CUDA toolkit"
    if toolkit.nvcc is None:
        raise BuildError(
            "there is neither NVRTC nor nvcc to compile a raw kernel with", hints=("pip install nvidia-cuda-nvrtc",)
        )
    check_archs(tuple(archs), toolkit)
    return toolkit


def _by_nvcc(
    kernel: RawKernel, archs: Sequence[Arch], toolkit: CudaToolkit, session: Session, staging: Path
) -> tuple[Image, ...]:
    head = (str(toolkit.nvcc), "-cubin", "-ccbin", str(toolkit.host_compiler.path), *kernel.options())
    source = GeneratedFile(path=f"src/{kernel.file_name}", text=instantiated(kernel.source, kernel.name))
    edges = tuple(
        Edge(
            argv=(*head, f"-arch={arch.sm}", source.path, "-o", f"{arch.sm}.cubin"),
            inputs=(source.path,),
            outputs=(f"{arch.sm}.cubin",),
            description=f"compiling {kernel.name.base} for {arch.sm}",
        )
        for arch in archs
    )
    run = partial(execute, ninja=resolve_ninja(session.system), jobs=1, environ=session.system.environ)
    limit_s = session.settings.compile_timeout_s
    try:
        with Progress(kernel.name.base, edges) as progress:
            run(BuildPlan(files=(source,), edges=edges), staging, timeout_s=limit_s, on_finish=progress.finish)
    except BuildError as error:
        raise _explained(error, kernel) from None
    cubins = [(arch, (staging / f"{arch.sm}.cubin").read_bytes()) for arch in archs]
    return tuple(Image(arch, entry_in_cubin(cubin, kernel.name), cubin) for arch, cubin in cubins)


def _explained(error: BuildError, kernel: RawKernel) -> BuildError:
    """The same failure with its first real error."""
    from ..build.diagnose import explained

    return explained(error, {kernel.file_name: kernel.source}) if error.output else error
