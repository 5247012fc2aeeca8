"""Compilation of a raw kernel to machine code, by NVRTC if it is installed, else by nvcc."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from be_runtime.cache import CacheKey, make_key, shadowing_paths
from be_runtime.cache.validity.examine import record_file
from be_runtime.compile.inputs.dependencies import read_from_outside
from be_runtime.compile.inputs.observe import LookedAt
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, GeneratedFile
from be_runtime.compile.plan.unit_files import SOURCES
from be_runtime.compile.run.execute import Runner
from be_runtime.compile.run.programs import resolve_ninja
from be_runtime.compile.run.progress import Progress
from be_runtime.errors import BuildError
from be_runtime.kernels.cuda import nvrtc
from be_runtime.kernels.cuda.describe import KernelImage
from be_runtime.kernels.cuda.images import Compiled, Origin
from be_runtime.kernels.cuda.raw_headers import Search, find_headers, named_paths
from be_runtime.kernels.cuda.raw_source import RawKernel, entry_in_cubin, for_nvrtc, instantiated, placeless
from be_runtime.load.identity import Field, own_key
from be_runtime.load.own_code import own_code_digest
from be_runtime.load.session import Session
from be_toolchain import ToolchainRequest, probe_devices, resolve
from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError, ToolchainError
from be_toolchain.find.record import ObservingSystem
from be_toolchain.known.catalog import COMPILE_VARIABLES
from be_toolchain.machine.system import System
from be_toolchain.model import CudaToolkit, Nvcc, Toolchain, check_archs

_LARGEST_HEADER = 1 << 28


def raw_key(kernel: RawKernel, archs: Sequence[Arch], session: Session, *, with_ptx: bool = False) -> CacheKey:
    """Make the key of a compiled kernel.

    No compiler is opened for the key: it has the files of the NVRTC libraries that may be used. If none of them can
    compile the kernel, the entry depends on the files of the compiler that did.
    """
    return own_key(
        "kernel",
        *_fields(kernel, archs),
        ("options", kernel.options()),
        ("ptx", str(with_ptx)),
        ("compilers", _compiler_files(session)),
        ("environment", _environment(session.system)),
        ("generator", own_code_digest()),
    )


def raw_origin(kernel: RawKernel, archs: Sequence[Arch], session: Session) -> Origin:
    """Make the part of the kernel's id that is about its source, without paths of headers and compilers."""
    options, places = placeless(kernel.options())
    key = make_key("kernel", *_fields(kernel, archs), ("options", options))
    return Origin(key, places, partial(_compiler_contents, session))


def stored_origin(key: CacheKey, session: Session) -> Origin | None:
    """Return the same for a kernel in the cache, as far as it is shared; None if its compilers are not those of now."""
    if list(key.texts("compilers")) != _compiler_files(session):
        return None
    options, places = placeless(key.texts("options"))
    return Origin(make_key("kernel", ("options", options)), places, partial(_compiler_contents, session))


def _compiler_files(session: Session) -> list[str]:
    """List the files of the NVRTC libraries that may be used; what is known of a toolchain if there are none."""
    found = [_file_text(path, session.system) for path in _candidates(session.system)]
    return found or [part for pair in _toolchain(session).key_fields() for part in pair]


def _compiler_contents(session: Session) -> tuple[Field, ...]:
    """Return fields for the compilers in `raw_key` by their contents."""
    contents = [record_file(path, path).sha256 for path in map(str, _candidates(session.system))]
    if contents:
        return (("nvrtc", contents),)
    return (("toolchain", [part for pair in _toolchain(session).key_fields() for part in pair]),)


def _fields(kernel: RawKernel, archs: Sequence[Arch]) -> tuple[Field, ...]:
    return (
        ("name", kernel.name.base),
        ("source", kernel.source),
        ("expression", kernel.name.expression),
        ("archs", [arch.sm for arch in archs]),
    )


def _environment(system: System) -> list[str]:
    """List the environment variables that affect nvcc, with their values."""
    return [f"{name}={value}" for name in COMPILE_VARIABLES if (value := system.environ.get(name))]


def compile_raw(
    kernel: RawKernel, archs: Sequence[Arch], session: Session, staging: Path, *, with_ptx: bool = False
) -> Compiled:
    """Compile a kernel for each architecture, and to PTX of the latest that has no suffix if that is asked for.

    Raises
    ------
    BuildError
        It doesn't compile.
    ToolchainError
        There is neither NVRTC nor nvcc.
    """
    driver = probe_devices(session.system).driver_version
    found = nvrtc.find_nvrtc(session.system, (), driver, archs)
    if found is not None:
        return _by_nvrtc(kernel, archs, found, session.system, staging, with_ptx=with_ptx)
    system = ObservingSystem(session.system)
    found = _nvrtc_of_toolkit(session, system, driver, archs)
    listed = LookedAt.of_listings(system)
    if found is not None:
        made = _by_nvrtc(kernel, archs, found, session.system, staging, with_ptx=with_ptx)
        return _with_inputs(made, listed, found.path)
    toolkit = _toolchain(session).cuda
    assert toolkit is not None, "resolve() raises when there is no CUDA toolkit"
    nvcc = check_nvcc(toolkit, archs)
    check_archs(tuple(archs), toolkit)
    made = _by_nvcc(kernel, archs, nvcc, session, staging, with_ptx=with_ptx)
    return _with_inputs(made, listed, nvcc.path, nvcc.cicc, toolkit.ptxas)


def _with_inputs(made: Compiled, listed: LookedAt, *programs: Path) -> Compiled:
    """Add the compiler, and the folders that were searched for it: the key has none of them."""
    dependencies, absent = (*made.dependencies, *programs), (*made.absent, *listed.absent)
    return made._replace(dependencies=dependencies, others=listed.others, absent=absent)


def _candidates(system: System) -> list[Path]:
    """List the NVRTC libraries in the locations that need no search for a toolkit."""
    return [path for place in nvrtc.places(system) for path in nvrtc.libraries(place.folder, system)]


def _file_text(path: Path, system: System) -> str:
    stamp = system.stat(path)
    return f"{path} {stamp}"


def _nvrtc_of_toolkit(
    session: Session, system: System, driver: str | None, archs: Sequence[Arch]
) -> nvrtc.Nvrtc | None:
    """Return the NVRTC that `system` has in the session's toolkit; None if there is no toolkit, or it has none."""
    try:
        cuda = _toolchain(session).cuda
    except ToolchainError:
        return None
    return None if cuda is None else nvrtc.find_nvrtc(system, (cuda.root,), driver, archs)


def _toolchain(session: Session) -> Toolchain:
    return resolve(ToolchainRequest(need_cuda=True), system=session.system, record_dir=session.record_dir)


def _ptx_arch(archs: Sequence[Arch], *, with_ptx: bool) -> Arch | None:
    """Return the architecture whose PTX serves later ones."""
    return max((arch for arch in archs if with_ptx and not arch.suffix), default=None)


def _by_nvrtc(
    kernel: RawKernel, archs: Sequence[Arch], found: nvrtc.Nvrtc, system: System, staging: Path, *, with_ptx: bool
) -> Compiled:
    asked = for_nvrtc(kernel)
    named = named_paths(asked.flags)
    read = partial(system.read_text, limit_bytes=_LARGEST_HEADER)
    search = Search((*kernel.include_paths, *named), found.includes, nvrtc.HEADERS, read, cache(system.realpath))
    headers = find_headers(asked.source, kernel.file_name, search)
    options = (*asked.options(), *(f"-I{folder}" for folder in found.includes))
    try:
        programs = [
            nvrtc.compile_program(
                found,
                asked.source,
                staging / kernel.file_name,
                kernel.name.expression,
                (f"--gpu-architecture={arch.sm}", *options),
            )
            for arch in archs
        ]
    except BuildError as error:
        raise _explained(error, kernel) from None
    latest, made = _ptx_arch(archs, with_ptx=with_ptx), dict(zip(archs, programs, strict=True))
    ptx = [KernelImage(latest, made[latest].entry, made[latest].ptx, is_ptx=True)] if latest in made else []
    return Compiled(
        (*(KernelImage(arch, program.entry, program.code) for arch, program in made.items()), *ptx),
        dependencies=(*headers.files, *filter(system.is_file, named)),
        absent=headers.absent,
        unknown=headers.unknown,
        compiler=programs[0].compiler,
    )


def check_nvcc(toolkit: CudaToolkit, archs: Sequence[Arch]) -> Nvcc:
    """Return the nvcc of a toolkit, which compiles a raw kernel without NVRTC.

    Raises
    ------
    CudaNotFoundError
        The toolkit has no nvcc: clang compiles with it.
    """
    if not isinstance(toolkit.compiler, Nvcc):
        raise CudaNotFoundError(
            f"there is neither NVRTC nor nvcc to compile a raw kernel with: {toolkit.root} has no nvcc, and no NVRTC "
            f"was found that compiles for {', '.join(arch.sm for arch in archs)}",
            hints=(nvrtc.PACKAGES,),
        )
    return toolkit.compiler


def _by_nvcc(
    kernel: RawKernel, archs: Sequence[Arch], nvcc: Nvcc, session: Session, staging: Path, *, with_ptx: bool
) -> Compiled:
    system, timeout_s = session.system, session.settings.compile_timeout_s
    latest = _ptx_arch(archs, with_ptx=with_ptx)
    plan = _nvcc_plan(kernel, archs, nvcc, latest)
    runner = Runner(staging, ninja=resolve_ninja(system), jobs=1, environ=system.environ, timeout_s=timeout_s)
    try:
        with Progress(kernel.name.base, plan.commands) as progress:
            runner.run(plan, progress=progress)
    except BuildError as error:
        raise _explained(error, kernel) from None
    cubins = [(arch, (staging / f"{arch.sm}.cubin").read_bytes()) for arch in archs]
    images = [KernelImage(arch, entry_in_cubin(cubin, kernel.name), cubin) for arch, cubin in cubins]
    if latest is not None:
        text = (staging / f"{latest.compute}.ptx").read_bytes()
        images.append(images[archs.index(latest)]._replace(data=text, is_ptx=True))
    named = named_paths(kernel.flags)
    headers = read_from_outside((edge.depfile for edge in plan.edges if edge.depfile is not None), staging)
    return Compiled(
        tuple(images),
        dependencies=(*headers, *filter(system.is_file, named)),
        absent=shadowing_paths(headers, (*kernel.include_paths, *named)),
        compiler=(nvcc.label, nvcc.host.banner, *_environment(system)),
    )


def _nvcc_plan(kernel: RawKernel, archs: Sequence[Arch], nvcc: Nvcc, latest: Arch | None) -> BuildPlan:
    """Plan one command for each architecture, and one for PTX; each writes a depfile, and nothing is linked."""
    head = (str(nvcc.path), "-ccbin", str(nvcc.host.path), *kernel.options())
    source = GeneratedFile(path=f"{SOURCES}/{kernel.file_name}", text=instantiated(kernel.source, kernel.name))
    kinds = [("cubin", arch.sm) for arch in archs] + [("ptx", arch.compute) for arch in archs if arch == latest]
    edges = tuple(
        Edge(
            argv=(*head, f"-{kind}", f"-arch={arch}", source.path, "-o", f"{arch}.{kind}", "-MD", "-MF", f"{arch}.d"),
            inputs=(source.path,),
            outputs=(f"{arch}.{kind}",),
            description=f"compiling {kernel.name.base} for {arch}",
            tool="compile",
            depfile=f"{arch}.d",
        )
        for kind, arch in kinds
    )
    return BuildPlan(files=(source,), edges=edges)


def _explained(error: BuildError, kernel: RawKernel) -> BuildError:
    """Return the same failure with its first real error."""
    from be_runtime.compile.messages.diagnose import explained

    return explained(error, {kernel.file_name: kernel.source}, is_cuda=True) if error.output else error
