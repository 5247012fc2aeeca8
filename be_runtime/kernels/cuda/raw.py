"""`cuda_kernel`: a ``__global__`` function from source text, without host code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from be_runtime.call.call_options import check_options
from be_runtime.call.compiled_function import CompiledFunction
from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.kernels.cuda.calls import Obtained, choose_archs, new_session
from be_runtime.kernels.cuda.describe import Kernel
from be_runtime.kernels.cuda.geometry import Dims
from be_runtime.kernels.cuda.images import obtain_kernel
from be_runtime.kernels.cuda.launcher import own_launcher
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype
from be_runtime.kernels.cuda.raw_calls import RawPrototype, raw_function
from be_runtime.kernels.cuda.raw_compiler import compile_raw, raw_key, raw_origin
from be_runtime.kernels.cuda.raw_source import RawKernel
from be_runtime.kernels.cuda.sizes import Size
from be_runtime.load.session import Session
from be_runtime.request.arguments import StrPath, refuse_path
from be_runtime.request.noted import note
from be_runtime.request.options import check_arch_list, check_bool, check_flags, check_include_paths
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock

if TYPE_CHECKING:
    from be_runtime.reports.module_report import ModuleReport


@public
def cuda_kernel(
    source: str,
    name: str,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    grid: Size,
    block: Size,
    shared_mem: Size = 0,
    cluster: Dims | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
    use_fast_math: bool = False,
    compute_capability: str | Sequence[str] | None = None,
    line_info: bool = False,
) -> CompiledFunction:
    """Make a CUDA C++ kernel callable from JAX, launched natively on XLA's stream.

    The kernel is compiled when it is first traced, by NVRTC if it is installed (wheels, conda, a toolkit), else by
    nvcc, and kept in the cache.

    Parameters
    ----------
    source : str
        CUDA C++ with the kernel; no host code is needed.
    name : str
        Name of the kernel as C++ spells it: ``"scale"``, ``"ops::scale"`` or an instance of a template,
        ``"scale<float, 4>"``.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        The outputs. A callable is given the inputs' shapes and dtypes. With a `signature`, outputs follow from it.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec: ``"arg[n k] arg[k] ret[n]"``. A token ``scratch[4*n]`` is a pointer after
        the outputs, to as many bytes of memory from XLA. A token ``attr.n=1`` gives a scalar a default.
    grid, block : int, str, tuple of those, or callable
        One to three numbers. A text is arithmetic over the axes of the signature and over integer scalars:
        ``"ceil(n/256)"``, ``"attr.n"``. A callable is given the inputs' shapes and dtypes, such as
        ``lambda x: (x.size + 255) // 256``.
    shared_mem : int, str or callable
        Bytes of dynamic shared memory.
    cluster : int or tuple of int, optional
        Blocks of a thread block cluster.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. With methods that pass a whole batch, native code launches the kernel for each
        slice. By default ``"broadcast_all"`` if all arrays of the signature have leading axes, ``[... n]``, else none.
    input_output_aliases : dict of int to int, optional
        Inputs whose memory an output may use; the kernel still gets a pointer for each.
    has_side_effect : bool
        True to run the kernel even if its outputs are not used. The order of such calls is XLA's choice.
    ordered : bool
        True to run all such calls in the order of the program; it implies `has_side_effect`.
    input_layouts, output_layouts : sequence of (sequence of int or None), optional
        Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``.
    random : bool
        True for a kernel whose results differ from call to call; else checked mode reports that.
    extra_cuda_cflags, extra_include_paths : list, optional
        Options for the compiler, such as ``["-DN=4"]``, and folders of headers.
    use_fast_math : bool
    compute_capability : str or list of str, optional
        Architecture, such as ``"sm_90"``, or several; by default that of the devices present.
    line_info : bool
        Tell profilers the lines of the source; the code stays the same.

    Returns
    -------
    callable
        Takes the inputs, and each scalar parameter of the kernel as a keyword argument by its name; returns what
        `outs` describes. The kernel's pointers are the inputs, which must be ``const``, followed by the outputs.

    Raises
    ------
    ArgumentError
        Bad arguments here; at a call, inputs that don't fit the kernel's parameters.
    SpecError
        The source has no such kernel, several that match the name, or one with a parameter that can't be passed. The
        signature can't be understood, or contradicts the kernel.
    BuildError
        At a call: the source doesn't compile.
    ToolchainError
        At a call: there is neither NVRTC nor nvcc.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> scale = cuda_kernel(
    ...     '''__global__ void scale(const float* x, float* y, float by, int n) {
    ...       int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...       if (i < n) y[i] = by * x[i];
    ...     }''',
    ...     "scale",
    ...     outs=lambda x: x,
    ...     grid=lambda x: (x.size + 255) // 256,
    ...     block=256,
    ... )
    >>> x = jnp.arange(1000.0)
    >>> y = scale(x, by=2.0, n=x.size)  # doctest: +SKIP
    """
    kernel = raw_kernel(
        source, name, extra_cuda_cflags, extra_include_paths, use_fast_math=use_fast_math, line_info=line_info
    )
    note(repr(kernel))
    variants = _Variants(kernel, check_arch_list(compute_capability, "compute_capability"))

    def obtain() -> Obtained:
        session = new_session()
        return Obtained(
            variants.get(session), own_launcher(session), partial(build_raw, kernel, session=session, with_ptx=True)
        )

    def report(block_sizes: Sequence[int] | None) -> ModuleReport:
        from be_runtime.reports.make_report import report_cubins
        from be_runtime.reports.module_report import check_blocks

        session, blocks = new_session(), check_blocks(block_sizes)
        cubins = [(image.arch, image.data) for image in variants.get(session).images if not image.is_ptx]
        return report_cubins(kernel.name.expression, cubins, session.system, blocks)

    options = check_options(
        outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random=random
    )
    sizes = {"grid": grid, "block": block, "shared_mem": shared_mem}
    return raw_function(prototype_of(kernel), obtain, signature, sizes, cluster, options, report)


def raw_kernel(
    source: str,
    name: str,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
    *,
    use_fast_math: bool = False,
    line_info: bool = False,
) -> RawKernel:
    """Check what `cuda_kernel` is told of a kernel's source."""
    for argument, value in (("source", source), ("name", name)):
        check_text(value, argument)
    lines = ("-lineinfo",) if check_bool(line_info, "line_info") else ()
    return RawKernel(
        source,
        parse_name(name),
        (*check_flags(extra_cuda_cflags, "extra_cuda_cflags"), *lines),
        check_include_paths(extra_include_paths),
        check_bool(use_fast_math, "use_fast_math"),
    )


def prototype_of(kernel: RawKernel) -> RawPrototype:
    """Read the prototype of a kernel from its source."""
    return RawPrototype(kernel.name.base, kernel.name.expression, tuple(read_prototype(kernel.source, kernel.name)))


def check_text(value: object, argument: str) -> None:
    """Check that an argument is a str, and not a path."""
    refuse_path(value, argument, f"pass its text: pathlib.Path({str(value)!r}).read_text()")
    if not isinstance(value, str):
        raise ArgumentError(f"{argument} must be a string, not {type(value).__name__}: {value!r}")


class _Variants:
    """The kernels for each set of architectures, obtained on first use."""

    def __init__(self, kernel: RawKernel, compute_capability: str | None) -> None:
        self._kernel = kernel
        self._asked = compute_capability
        self._made: dict[tuple[Arch, ...], Kernel] = {}
        self._lock = ThreadLock()

    def get(self, session: Session) -> Kernel:
        """Return the kernel for the current devices of the process."""
        archs = choose_archs(self._asked, session)
        with self._lock:
            if archs not in self._made:
                self._made[archs] = build_raw(self._kernel, archs, session)
            return self._made[archs]


def build_raw(kernel: RawKernel, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
    """Return the compiled kernel, from the cache or compiled now.

    Parameters
    ----------
    with_ptx : bool
        True for PTX too, see `compile_raw`.
    """
    return obtain_kernel(
        raw_key(kernel, archs, session, with_ptx=with_ptx),
        raw_origin(kernel, archs, session),
        lambda staging: compile_raw(kernel, archs, session, staging, with_ptx=with_ptx),
        kernel.name.expression,
        session,
    )
