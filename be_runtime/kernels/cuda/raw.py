"""`cuda_kernel`: a ``__global__`` function from source text, without host code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from be_runtime.call.attributes import hold
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, call_named
from be_runtime.kernels.cuda.calls import choose_archs, launch, new_session
from be_runtime.kernels.cuda.describe import Geometry, Kernel, LaunchParam, pointer_param, scalar_param
from be_runtime.kernels.cuda.geometry import Dims, explicit_geometry, shared_bytes
from be_runtime.kernels.cuda.images import obtain_kernel
from be_runtime.kernels.cuda.prototype import KernelParam, parse_name, read_prototype
from be_runtime.kernels.cuda.raw_compiler import compile_raw, raw_key, raw_origin
from be_runtime.kernels.cuda.raw_source import RawKernel
from be_runtime.load.pipeline import Session
from be_runtime.request.arguments import StrPath, refuse_path
from be_runtime.request.options import check_arch_list, check_bool, check_flags, check_include_paths
from be_runtime.xla import jax_port
from be_runtime.xla.arrays import ArraySpec, check_aliases, check_outs, check_vmap_method, match_aliases
from be_runtime.xla.inputs import as_kernel_arrays
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock

Size = Dims | Callable[..., Dims]


def cuda_kernel(
    source: str,
    name: str,
    outs: Any,
    *,
    grid: Size,
    block: Size,
    shared_mem: int | Callable[..., int] = 0,
    cluster: Dims | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
    use_fast_math: bool = False,
    compute_capability: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
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
    outs : ShapeDtypeStruct, pytree of them, or callable
        The outputs. A callable is given the inputs' shapes and dtypes.
    grid, block : int, tuple of int, or callable
        One to three numbers. A callable is given the inputs' shapes and dtypes, such as
        ``lambda x: (x.size + 255) // 256``.
    shared_mem : int or callable
        Bytes of dynamic shared memory.
    cluster : int or tuple of int, optional
        Blocks of a thread block cluster.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. With methods that pass a whole batch, native code launches the kernel for each
        slice.
    input_output_aliases : dict of int to int, optional
        Inputs whose memory an output may use; the kernel still gets a pointer for each.
    extra_cuda_cflags, extra_include_paths : list, optional
        Options for the compiler, such as ``["-DN=4"]``, and folders of headers.
    use_fast_math : bool
    compute_capability : str or list of str, optional
        Architecture, such as ``"sm_90"``, or several; by default that of the devices present.

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
        The source has no such kernel, several that match the name, or one with a parameter that can't be passed.
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
    for argument, value in (("source", source), ("name", name)):
        check_text(value, argument)
    kernel = RawKernel(
        source,
        parse_name(name),
        check_flags(extra_cuda_cflags, "extra_cuda_cflags"),
        check_include_paths(extra_include_paths),
        check_bool(use_fast_math, "use_fast_math"),
    )
    prototype = read_prototype(source, kernel.name)
    method = check_vmap_method(vmap_method)
    aliases = check_aliases(input_output_aliases)
    if not callable(grid) and not callable(block):
        explicit_geometry(grid, block, cluster=cluster)
    if not callable(shared_mem):
        shared_bytes(shared_mem)
    variants = _Variants(kernel, check_arch_list(compute_capability, "compute_capability"))

    def call(*inputs: Any, **scalars: Any) -> Any:
        label = kernel.name.expression
        arrays, specs = as_kernel_arrays(inputs, label)
        shapes = [jax_port.shape_of(array) for array in arrays]

        def evaluate(what: str, value: Any) -> Any:
            is_expression = callable(value) and not isinstance(value, type)
            return call_named(f"{what} of {label}", value, *shapes) if is_expression else value

        leaves, unflatten = jax_port.flatten(evaluate("outs", outs))
        out_specs = check_outs(leaves)
        match_aliases(aliases, specs, out_specs)
        params = bind_params(label, prototype, specs, out_specs, scalars)
        geometry = explicit_geometry(
            evaluate("grid", grid),
            evaluate("block", block),
            shared_mem=evaluate("shared_mem", shared_mem),
            cluster=cluster,
            may_be_empty=not any(spec.size for spec in out_specs),
        )
        return unflatten(_launch(variants, geometry, params, arrays, leaves, vmap_method=method, aliases=aliases))

    call.__name__ = kernel.name.base
    call.__doc__ = f"The CUDA kernel {kernel.name.expression}; see `be_runtime.cuda_kernel`."
    return call


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
                self._made[archs] = obtain_kernel(
                    raw_key(self._kernel, archs, session),
                    raw_origin(self._kernel, archs),
                    lambda staging: compile_raw(self._kernel, archs, session, staging),
                    self._kernel.name.expression,
                    session,
                )
            return self._made[archs]


def _launch(
    variants: _Variants,
    geometry: Geometry,
    params: Sequence[LaunchParam],
    arrays: Sequence[Any],
    outs: Sequence[Any],
    *,
    vmap_method: str | None,
    aliases: Mapping[int, int],
) -> Sequence[Any]:
    session = new_session()
    kernel = variants.get(session)
    return launch(kernel, geometry, params, arrays, outs, session=session, vmap_method=vmap_method, aliases=aliases)


def bind_params(
    name: str,
    prototype: Sequence[KernelParam],
    inputs: Sequence[ArraySpec],
    outs: Sequence[ArraySpec],
    scalars: Mapping[str, Any],
) -> tuple[LaunchParam, ...]:
    """Bind the parameters of a kernel to the buffers and scalars of one call. Pure.

    Raises
    ------
    ArgumentError
        The call doesn't fit the kernel.
    """
    pointers = [param for param in prototype if param.is_pointer]
    named = [param.name for param in prototype if not param.is_pointer]
    if len(pointers) != len(inputs) + len(outs):
        raise ArgumentError(
            f"{name} takes {len(pointers)} pointers, but the call has {len(inputs)} inputs and {len(outs)} outputs",
            hints=("a kernel's pointers are the inputs of the call, then the outputs",),
        )
    if set(named) != set(scalars):
        raise ArgumentError(
            f"{name} takes the scalars ({', '.join(named)}), but the call passes ({', '.join(scalars)})",
            hints=("pass each scalar parameter as a keyword argument, by its name in the source",),
        )
    buffers = iter(enumerate((*inputs, *outs)))
    return tuple(
        _pointer(name, param, *next(buffers), len(inputs)) if param.is_pointer else _scalar(name, param, scalars)
        for param in prototype
    )


def _pointer(name: str, param: KernelParam, index: int, spec: ArraySpec, input_count: int) -> LaunchParam:
    what = f"input {index}" if index < input_count else f"output {index - input_count}"
    is_bytes = spec.dtype.is_for_arrays_only and param.dtype == BY_NAME["uint8"]
    if param.dtype is not None and param.dtype != spec.dtype and not is_bytes:
        raise ArgumentError(
            f"{name}: {what} is {spec}, but the parameter is {param.type} {param.name}",
            hints=(f"cast it to {param.dtype.name}, or use an instance of the kernel for {spec.dtype.name}",),
        )
    if index < input_count and not param.is_const:
        raise ArgumentError(
            f"{name}: {what} is passed as {param.type} {param.name}, which the kernel could write",
            hints=(
                f"declare it 'const {param.type} {param.name}': JAX's arrays never change",
                "to work in place, write to an output and pass input_output_aliases",
            ),
        )
    if index >= input_count and param.is_const:
        raise ArgumentError(f"{name}: {what} is passed as {param.type} {param.name}, which the kernel can't write")
    return pointer_param(index, spec.ndim, spec.dtype.bits)


def _scalar(name: str, param: KernelParam, scalars: Mapping[str, Any]) -> LaunchParam:
    assert param.dtype is not None, "a scalar of unknown type is refused with its prototype"
    number = hold(scalars[param.name], param.dtype)
    if number is None:
        raise ArgumentError(
            f"{name}: {param.name}={scalars[param.name]!r} is not a valid {param.dtype.name}, which the kernel takes",
            hints=("a scalar is a number that is known when the call is traced; pass an array for any other value",),
        )
    return scalar_param(number.tobytes())
