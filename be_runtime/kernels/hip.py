"""`hip_kernel`: a ``__global__`` function from HIP source text, compiled for AMD GPUs; nothing launches it yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.call.array_function import ArrayFunction
from be_runtime.call.attributes import check_options
from be_runtime.call.resolve import Resolved
from be_runtime.compile.plan import SOURCES, BuildPlan, Edge, GeneratedFile
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.kernels import launcher
from be_runtime.kernels.launcher import Compiled, Kernel, KernelImage, Origin
from be_runtime.kernels.raw import layout_of, raw_function, raw_kernel
from be_runtime.kernels.raw_compiler import RawKernel, instantiated, named_paths, only_entry, placeless
from be_runtime.kernels.sizes import Size
from be_runtime.kernels.source import Bound, Obtained
from be_runtime.load.identity import own_code_digest, own_key
from be_runtime.load.native_library import run_plan
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.own_files import NATIVE_DIR
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import note
from be_runtime.store.cache import BuildOutput
from be_runtime.store.keys import make_key
from be_runtime.store.manifest import shadowing_paths
from be_toolchain.arch import AmdArch
from be_toolchain.find.compilers import Candidate
from be_toolchain.find.hip import HipCompiler, find_hip, hip_candidates
from be_toolchain.known.layouts import COMPILE_VARIABLES, HIP_VARIABLES, ROCM_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADERS, _HEADER = f"{SOURCES}/without_rocm", "hip/hip_runtime.h"
_ENTRY = re.compile(rb"([\w$]+)\.kd\0")
"""The symbol of a kernel's descriptor in a code object, https://llvm.org/docs/AMDGPUUsage.html#symbols."""


@public
def hip_kernel(
    source: str,
    name: str,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    grid: Size,
    block: Size,
    shared_mem: Size = 0,
    offload_arch: str | Sequence[str],
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
    extra_hip_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
) -> ArrayFunction:
    """Compile a HIP kernel for AMD GPUs; launching the kernel is not supported yet.

    This function is experimental. A call of the returned function checks the inputs, compiles the kernel with hipcc or
    clang++, stores the code in the cache, and then raises a `LoadError`. HIP's headers are included automatically. If
    ROCm is not installed, a header of this package declares a small part of HIP.

    Parameters
    ----------
    source : str
        HIP source text with the kernel.
    name : str
        Name of the kernel in C++, such as ``"scale"`` or ``"ops::scale"``, or an instance of a template, such as
        ``"scale<float, 4>"``.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec, such as ``"arg[n k] arg[k] ret[n]"``. For a token ``scratch[4*n]``, the
        kernel takes one more parameter after the results: a pointer to ``4*n`` bytes of memory.
    grid : int, str, tuple of int or str, or callable
        Number of blocks along one to three axes. A string is arithmetic over the axes of the signature and integer
        attributes, such as ``"ceil(n/256)"`` or ``"attr.n"``. A callable, such as ``lambda x: (x.size + 255) // 256``,
        receives the shapes and dtypes of the inputs.
    block : int, str, tuple of int or str, or callable
        Number of threads per block along one to three axes, in the same form as `grid`.
    shared_mem : int, str or callable, default 0
        Dynamic shared memory per block, in bytes.
    offload_arch : str or list of str
        Architectures, such as ``"gfx942"``.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. With ``"broadcast_all"`` or ``"expand_dims"``, a call passes
        the whole batch, and native code launches the kernel once for each element. If the axes of each array in the
        signature begin with ``...``, the default is ``"broadcast_all"``. If all arrays have axes in the signature, but
        the axes of an array begin differently, the default is ``"sequential"``. If an array has no axes in the
        signature, ``vmap`` needs this argument.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of the result that may share the input's memory. The kernel
        gets a pointer to the input and a pointer to the result.
    has_side_effect : bool, default False
        Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    input_layouts : sequence of (sequence of int or None), optional
        Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``.
    output_layouts : sequence of (sequence of int or None), optional
        Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.
    extra_hip_cflags : list of str, optional
        Arguments for clang, such as ``["-ffast-math"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.

    Returns
    -------
    callable
        Function that takes the inputs by position and the kernel's attributes by name. Every call raises an error.

    Raises
    ------
    ArchError
        `offload_arch` is not an architecture of AMD GPUs.
    ArgumentError
        An argument has a wrong type or value.
    SpecError
        The source does not define the kernel, or the signature is invalid.
    HipNotFoundError
        At a call: no compiler on this machine compiles for the architecture.
    BuildError
        At a call: the source can't be compiled.
    LoadError
        At a call, after the compilation: launching on AMD GPUs is not supported.

    See Also
    --------
    - `cuda_kernel`: compile a kernel for NVIDIA GPUs.
    - :doc:`/other-compilers`: the search for a HIP compiler.

    Examples
    --------
    >>> import be_runtime
    >>> fill = be_runtime.hip_kernel(
    ...     "__global__ void fill(float* y) { y[threadIdx.x] = 1; }",
    ...     "fill",
    ...     signature="ret[256]:float32",
    ...     grid=1,
    ...     block=256,
    ...     offload_arch="gfx942",
    ... )
    >>> fill()  # doctest: +SKIP
    be_runtime.errors.LoadError: be_runtime has no launcher for ROCM, so the kernel can't run
    """
    given = {"extra_cuda_cflags": extra_hip_cflags, "extra_include_paths": extra_include_paths}
    kernel = raw_kernel({"source": source, "name": name, **given})._replace(suffix=".hip")
    options = check_options(locals())
    code = HipCode(kernel, check_amd_archs(offload_arch))
    note(repr(kernel))
    sizes = {"grid": grid, "block": block, "shared_mem": shared_mem, "cluster": None}
    return raw_function(layout_of(kernel), code, signature, sizes, options)


class HipCode(NamedTuple):
    """The code objects of a kernel from source text.

    Parameters
    ----------
    kernel : RawKernel
    archs : tuple of AmdArch
    """

    kernel: RawKernel
    archs: tuple[AmdArch, ...]

    def obtain(self, _call: Resolved, _bound: Bound) -> Obtained:
        """Return the kernel, which is the same for all calls."""
        session = PROCESS.session()
        made = build_hip(self.kernel, self.archs, session)
        return Obtained(made, launcher.own_launcher(session, made.platform))


def check_amd_archs(given: object) -> tuple[AmdArch, ...]:
    """Check the architectures of a call.

    Raises
    ------
    ArchError
        A text is not an architecture of AMD GPUs.
    ArgumentError
        `given` has no architecture.
    """
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not names or not all(isinstance(each, str) for each in names):
        raise ArgumentError(f"offload_arch must be an architecture such as 'gfx942', or a list of them, not {given!r}")
    return tuple(sorted({AmdArch.parse(each) for each in names}))


def build_hip(kernel: RawKernel, archs: tuple[AmdArch, ...], session: Session) -> Kernel:
    """Return the compiled kernel, from the cache or compiled now."""
    given = ("name", kernel.name.base), ("source", kernel.source), ("expression", kernel.name.expression)
    fields = (*given, ("archs", list(map(str, archs))))
    options, places = placeless(kernel.options())
    made = make_key("hip", *fields, ("options", options))
    origin = Origin(made, places, lambda: (("hip", [find_hip(session.system, arch).banner for arch in archs]),))
    key = own_key(
        "hip",
        *(*fields, ("options", kernel.options()), ("compilers", _compiler_files(session))),
        *(("environment", _environment(session)), ("generator", own_code_digest())),
    )
    compile_now = partial(compile_hip, kernel, archs, session)
    return launcher.obtain_kernel(key, origin, compile_now, kernel.name.expression, session)


def _compiler_files(session: Session) -> list[str]:
    """List the files of the possible compilers, and of ROCm, without starting a program."""
    system = session.system
    paths = [each.path for each in hip_candidates(system) if isinstance(each, Candidate)]
    roots = dict.fromkeys((system.environ.get("ROCM_PATH") or ROCM_ROOT, ROCM_ROOT, "/usr"))
    paths += [Path(root) / "include/hip/hip_version.h" for root in roots]
    return [f"{path} {system.stat(path)}" for path in paths]


def _environment(session: Session) -> list[str]:
    names = (*COMPILE_VARIABLES, *HIP_VARIABLES)
    return [f"{name}={value}" for name in names if (value := session.system.environ.get(name))]


def compile_hip(kernel: RawKernel, archs: Sequence[AmdArch], session: Session, staging: Path) -> Compiled:
    """Compile a kernel to a code object for each architecture.

    Raises
    ------
    BuildError
        The kernel doesn't compile.
    HipNotFoundError
        No compiler here compiles for one of the architectures.
    """
    found = {arch: find_hip(session.system, arch) for arch in archs}
    try:
        headers = run_plan(kernel.name.base, _plan(kernel, found), session, staging)
    except BuildError as error:
        if not error.output:
            raise
        from be_runtime.compile.messages import explained

        bare = ", ".join(str(arch) for arch, each in found.items() if not each.has_rocm)
        if bare:
            error.hints = (f"ROCm for {bare} is not installed here, so only a part of HIP is declared",)
        raise explained(error, {kernel.file_name: kernel.source}, is_cuda=False) from None
    objects = [(arch, (staging / f"{arch}.hsaco").read_bytes()) for arch in archs]
    images = [KernelImage(arch, only_entry(_ENTRY.findall(data), kernel.name), data) for arch, data in objects]
    named = named_paths(kernel.flags)
    used = dict.fromkeys(path for each in found.values() for path in (each.path, *each.used))
    read = (*headers, *filter(session.system.is_file, named), *used)
    absent = shadowing_paths(headers, (*kernel.include_paths, *named))
    compiler = (*(each.banner for each in found.values()), *_environment(session))
    return Compiled(tuple(images), BuildOutput((), read, absent=absent), compiler)


def _plan(kernel: RawKernel, found: Mapping[AmdArch, HipCompiler]) -> BuildPlan:
    """Plan a command for each architecture."""
    source = GeneratedFile(path=f"{SOURCES}/{kernel.file_name}", text=instantiated(kernel.source, kernel.name))
    header = GeneratedFile(f"{_HEADERS}/{_HEADER}", (NATIVE_DIR / "hip_runtime.h").read_text(encoding="utf-8"))
    edges = []
    for arch, compiler in found.items():
        own = () if compiler.has_rocm else ("-isystem", _HEADERS)
        options = ("-O3", *own, "-include", _HEADER, *kernel.options(), "-Wno-unused-const-variable")
        output = ("-c", source.path, "-o", f"{arch}.hsaco", "-MD", "-MF", f"{arch}.d")
        edges.append(
            Edge(
                argv=(*compiler.command(arch), *options, *output),
                inputs=(source.path,),
                outputs=(f"{arch}.hsaco",),
                description=f"compiling {kernel.name.base} for {arch}",
                tool="compile",
                depfile=f"{arch}.d",
            )
        )
    return BuildPlan(files=(source, header), edges=tuple(edges))
