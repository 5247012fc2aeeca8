"""`cuda_kernel`: a ``__global__`` function from source text, without host code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.call.array_function import ArrayFunction, ArrayKernel
from be_runtime.call.attributes import Options, check_options, known_dtype
from be_runtime.call.compiled_function import Report
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Value, as_jax
from be_runtime.kernels.geometry import Dims, Geometry, LaunchParam, explicit_geometry, pointer_param, scalar_param
from be_runtime.kernels.launcher import Kernel, KernelParam
from be_runtime.kernels.raw_compiler import RawKernel, parse_name, read_prototype
from be_runtime.kernels.sizes import Size, read_sizes
from be_runtime.kernels.source import (
    SCRATCH_UNIT,
    Bound,
    Code,
    CompiledCode,
    GpuSource,
    Launch,
    Variant,
    scalar_of,
)
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import StrPath, refuse_path
from be_runtime.request.options import check_arch_list, check_bool, check_flags, check_include_paths, note
from be_runtime.signature.model import Param, Role, axis_names, expressions
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from be_runtime.report import ModuleReport


class RawLayout(NamedTuple):
    """The name and parameters of a kernel that takes pointers and scalars.

    Parameters
    ----------
    name, label : str
        Last part of the kernel's name, and the whole name.
    params : tuple of KernelParam
    order : tuple of int, or None
        Number of each pointer's array, counting inputs, outputs and scratch memory; None for pointers in that order.
    by_axis : frozenset of str
        See `ArrayKernel`.
    """

    name: str
    label: str
    params: tuple[KernelParam, ...]
    order: tuple[int, ...] | None = None
    by_axis: frozenset[str] = frozenset()

    @property
    def scalars(self) -> tuple[Param, ...]:
        """The attributes of a call for the scalars."""
        return tuple(Param(role=Role.ATTR, name=p.name, dtype=p.dtype) for p in self.params if not p.is_pointer)

    def bind(self, call: Resolved, scalars: Mapping[str, Value]) -> Bound:
        """Bind the parameters to the buffers and scalars of a call."""
        taken = sum(param.is_pointer for param in self.params)
        groups = {"input": call.inputs, "output": call.shown, "scratch": call.hidden}
        buffers = [(what, number, spec) for what, specs in groups.items() for number, spec in enumerate(specs)]
        if taken != (len(buffers) if self.order is None else len(self.order)):
            scratch = f" and {call.scratch} of scratch memory" if call.scratch else ""
            raise ArgumentError(
                f"{self.label} takes {taken} pointers, but the call has {many(len(call.inputs), 'input')} and "
                f"{many(len(call.shown), 'output')}{scratch}",
                hints=("a kernel's pointers are the inputs of the call, then the outputs, then scratch memory",),
            )
        rest = iter(range(len(buffers)) if self.order is None else self.order)
        made: list[LaunchParam] = []
        extents: list[tuple[int, str]] = []
        for at, param in enumerate(self.params):
            if param.is_pointer:
                made.append(_pointer(self.label, param, number := next(rest), buffers[number]))
                continue
            is_given = param.name in scalars
            made.append(scalar_of(scalars[param.name]) if is_given else _extent(self.label, param, call))
            # A call may pass a count of its own in place of the extent.
            if param.name in self.by_axis and (not is_given or as_jax(scalars[param.name]) == call.values[param.name]):
                extents.append((at, param.name))
        return Bound(tuple(made), extents=tuple(extents))

    def fit(self, launch: Launch, _kernel: Kernel, _call: Resolved) -> Launch:
        """Return the launch as it is: its sizes fit all images."""
        return launch


def raw_function(
    layout: RawLayout,
    code: Code,
    signature: object,
    sizes: Mapping[str, Any],
    options: Options,
    report: Report | None = None,
    make: Callable[..., Geometry] = explicit_geometry,
) -> ArrayFunction:
    """Make the function of JAX arrays of a raw kernel from any source of code; see `cuda_kernel`.

    Parameters
    ----------
    layout : RawLayout
    code : Code
    signature : str, sequence of str, CallSignature or None
    sizes : mapping of str to Size
        ``grid``, ``block``, ``shared_mem`` and ``cluster``.
    options : Options
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    make : callable
        Function that makes the geometry, with the arguments of `explicit_geometry`.
    """
    label, pointers = layout.label, [param.name for param in layout.params if param.is_pointer]
    declared = signature if isinstance(signature, CallSignature) else None
    if declared is None:
        declared = read_signature(label, signature, pointers, layout.scalars)
    read = read_sizes(label, sizes, declared, make)
    scalars = layout.scalars if declared is None else declared.with_role(Role.ATTR)
    layout = layout._replace(by_axis=_scalars_by_axis(scalars, declared, read.names()))
    source = GpuSource(layout, code, read)
    source.sizes.check(options.outs)
    doc = f"The GPU kernel {label}; see `be_runtime.cuda_kernel`."
    made = ArrayKernel(layout.name, label, doc, declared, source, scalars, SCRATCH_UNIT, report, by_axis=layout.by_axis)
    return ArrayFunction(made, options)


def _scalars_by_axis(
    scalars: Sequence[Param], declared: CallSignature | None, in_sizes: Collection[str]
) -> frozenset[str]:
    """Return the whole numbers that have the name of an axis, but no default and no use as ``attr.NAME``."""
    if declared is None:
        return frozenset()
    axes = axis_names(param.axes for param in declared.with_role(Role.ARG))
    used = {*in_sizes, *(name for param in declared.params for each in expressions(param.axes) for name in each.names)}
    whole = [param.name for param in scalars if param.default is None and known_dtype(param).kind in ("int", "uint")]
    return frozenset(name for name in whole if name in axes and f"attr.{name}" not in used)


def _extent(label: str, param: KernelParam, call: Resolved) -> LaunchParam:
    """Describe a scalar that is the extent of an axis."""
    extent, dtype = call.values[param.name], param.dtype
    assert dtype is not None, "the scalar is a whole number"
    try:
        return scalar_param(extent.to_bytes(dtype.size_bytes, "little", signed=dtype.kind == "int"))
    except OverflowError:
        raise ArgumentError(f"{label}: axis {param.name} is {extent}, too large for {param.type}") from None


def _pointer(name: str, param: KernelParam, index: int, buffer: tuple[str, int, ArraySpec]) -> LaunchParam:
    kind, number, spec = buffer
    what = f"{kind} {number}"
    is_bytes = kind == "scratch" or (spec.dtype.is_for_arrays_only and param.dtype == BY_NAME["uint8"])
    if param.dtype is not None and param.dtype != spec.dtype and not is_bytes:
        raise ArgumentError(
            f"{name}: {what} is {spec}, but the parameter is {param.type} {param.name}",
            hints=(f"cast it to {param.dtype.name}, or use an instance of the kernel for {spec.dtype.name}",),
        )
    if kind == "input" and not param.is_const:
        raise ArgumentError(
            f"{name}: {what} is passed as {param.type} {param.name}, which the kernel could write",
            hints=(
                f"declare it 'const {param.type} {param.name}': JAX's arrays never change",
                "to work in place, write to an output and pass input_output_aliases",
            ),
        )
    if kind != "input" and param.is_const:
        raise ArgumentError(f"{name}: {what} is passed as {param.type} {param.name}, which the kernel can't write")
    return pointer_param(index, spec.ndim, spec.dtype.bits)


class RawCode(CompiledCode):
    """The images of a kernel from source text.

    Parameters
    ----------
    kernel : RawKernel
    asked : str or None
        See `CompiledCode`.
    """

    def __init__(self, kernel: RawKernel, asked: str | None) -> None:
        super().__init__(asked)
        self._kernel = kernel

    def compilable(self, _call: Resolved, _variant: Variant) -> RawKernel:
        """Return the kernel, which is the same for all calls."""
        return self._kernel

    def report(self, block_sizes: Sequence[int] | None) -> ModuleReport:
        """Return the compiler's report for block sizes."""
        from be_runtime.report import check_blocks, report_cubins

        session, blocks = PROCESS.session(), check_blocks(block_sizes)
        images = self.built(self._kernel, (), session).images
        cubins = [(image.cuda_arch, image.data) for image in images if not image.is_ptx]
        return report_cubins(self._kernel.name.expression, cubins, session.system, blocks)


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
) -> ArrayFunction:
    """Make a CUDA C++ kernel callable from JAX. Native code launches the kernel on XLA's stream.

    When JAX first traces a call, NVRTC compiles the kernel. If NVRTC is not installed, nvcc compiles the kernel. The
    cache keeps the machine code.

    Parameters
    ----------
    source : str
        CUDA C++ source text with the kernel. The text needs no host code.
    name : str
        Name of the kernel in C++, such as ``"scale"`` or ``"ops::scale"``, or an instance of a template, such as
        ``"scale<float, 4>"``.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec, such as ``"arg[n k] arg[k] ret[n]"``. For a token ``scratch[4*n]``, the
        kernel takes one more parameter after the results: a pointer to ``4*n`` bytes of memory. A token such as
        ``attr.n=1`` sets the default of an attribute. If an integer attribute has the name of an input's axis, a call
        may leave out the attribute: the kernel then gets the extent of the axis.
    grid : int, str, tuple of int or str, or callable
        Number of blocks along one to three axes. A string is arithmetic over the axes of the signature and integer
        attributes, such as ``"ceil(n/256)"`` or ``"attr.n"``. A callable, such as ``lambda x: (x.size + 255) // 256``,
        receives the shapes and dtypes of the inputs.
    block : int, str, tuple of int or str, or callable
        Number of threads per block along one to three axes, in the same form as `grid`.
    shared_mem : int, str or callable, default 0
        Dynamic shared memory per block, in bytes.
    cluster : int or tuple of int, optional
        Number of blocks per thread block cluster along one to three axes.
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
    extra_cuda_cflags : list of str, optional
        Arguments for the compiler, such as ``["-DN=4"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    use_fast_math : bool, default False
        Pass ``--use_fast_math`` to the compiler, for faster but less exact floating-point arithmetic.
    compute_capability : str or list of str, optional
        Architectures, such as ``"sm_90"``. By default, the architectures come from the first of these places that names
        an architecture: `set_compute_capabilities`, the variable ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine.
    line_info : bool, default False
        Record source lines for profilers. The instructions stay the same.

    Returns
    -------
    callable
        Function that takes the inputs by position and the kernel's attributes by name, and returns arrays in the
        structure of `outs`. The kernel gets pointers to the inputs, and then pointers to the results. In the kernel,
        declare the pointers to the inputs as ``const``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value. At a call: the inputs don't fit the kernel's parameters, or no
        architecture is named and the machine has no GPU.
    SpecError
        The source defines no kernel of that name or several such kernels, a parameter of the kernel has an unsupported
        type, or the signature is invalid or contradicts the kernel.
    BuildError
        At a call: the source can't be compiled.
    ToolchainError
        At a call: neither NVRTC nor nvcc was found.

    See Also
    --------
    - `load_cuda_inline`: compile a kernel with host code.
    - `cubin_kernel`: call a compiled kernel.
    - :doc:`/kernels`: launch sizes, attributes, scratch memory and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> scale = be_runtime.cuda_kernel(
    ...     '''__global__ void scale(const float* x, float* y, float by, int n) {
    ...       int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...       if (i < n) y[i] = by * x[i];
    ...     }''',
    ...     "scale",
    ...     signature="arg[n] ret[n]",
    ...     grid="ceil(n/256)",
    ...     block=256,
    ... )
    >>> scale(jnp.arange(3.0), by=2.0).tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0]
    """
    kernel, options = raw_kernel(locals()), check_options(locals())
    note(repr(kernel))
    code = RawCode(kernel, check_arch_list(compute_capability, "compute_capability"))
    sizes = {"grid": grid, "block": block, "shared_mem": shared_mem, "cluster": cluster}
    return raw_function(layout_of(kernel), code, signature, sizes, options, code.report)


def raw_kernel(given: Mapping[str, Any]) -> RawKernel:
    """Check the arguments of `cuda_kernel` that describe a kernel's source, and return the kernel."""
    for argument in ("source", "name"):
        value = given[argument]
        refuse_path(value, argument, f"pass its text: pathlib.Path({str(value)!r}).read_text()")
        if not isinstance(value, str):
            raise ArgumentError(f"{argument} must be a string, not {type(value).__name__}: {value!r}")
    lines = ("-lineinfo",) if check_bool(given.get("line_info", False), "line_info") else ()
    flags = (*check_flags(given.get("extra_cuda_cflags"), "extra_cuda_cflags"), *lines)
    folders = check_include_paths(given.get("extra_include_paths"))
    is_fast = check_bool(given.get("use_fast_math", False), "use_fast_math")
    return RawKernel(given["source"], parse_name(given["name"]), flags, folders, is_fast)


def layout_of(kernel: RawKernel) -> RawLayout:
    """Read the name and parameters of a kernel from its source."""
    return RawLayout(kernel.name.base, kernel.name.expression, tuple(read_prototype(kernel.source, kernel.name)))
