"""`cuda_kernel`: a ``__global__`` function from source text, without host code, and the sizes of its launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.compiled_function import CompiledFunction, KernelTarget, Report
from be_runtime.call.extents import compute
from be_runtime.call.function import ArrayFunction, ArrayKernel, evaluate, known_outs
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import check_names, integers, read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Numbers, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.geometry import Dims, Geometry, LaunchParam, explicit_geometry, pointer_param, scalar_param
from be_runtime.kernels.launcher import Kernel, KernelParam, Memo, Obtained
from be_runtime.kernels.raw_compiler import RawKernel, compile_raw, parse_name, raw_key, raw_origin, read_prototype
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.request.arguments import StrPath, refuse_path
from be_runtime.request.options import check_arch_list, check_bool, check_flags, check_include_paths, note
from be_runtime.signature.expressions import Expression, parse_expression
from be_runtime.signature.model import Param, Role
from be_toolchain.arch import Arch
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from be_runtime.report import ModuleReport


Extent = int | str
Size = Extent | Sequence[Extent] | Callable[..., int | Sequence[int]]
"""A size of a launch in a caller's form."""

_PLACES = {"grid": 0, "launch_dims": 0, "block": 3, "shared_mem": 6}
"""First indices of sizes in `Geometry.encode`; `launch_dims` determines the grid."""

_SCRATCH_UNIT = 256
"""Alignment in bytes of each scratch memory, also in a batch."""


class Sizes(NamedTuple):
    """The sizes of a launch.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    given : mapping of str to object
        Sizes by the names of their arguments; texts are parsed as expressions.
    make : callable
        Function of the sizes and ``is_empty`` that checks them and makes the geometry.
    """

    label: str
    given: Mapping[str, Any]
    make: Callable[..., Geometry]

    def check(self, outs: Any) -> None:
        """Check the sizes if they are the same for all calls."""
        if not any(callable(each) or _expressions(each) for each in self.given.values()):
            known = known_outs(outs)
            self.make(**self.given, is_empty=known is not None and not any(spec.size for spec in known))

    def geometry(self, call: Resolved) -> Geometry:
        """Make the geometry of one call.

        Raises
        ------
        ArgumentError
            A size is not allowed; the message has the size's expression and the values in it.
        """
        numbers = {name: self._numbers(name, size, call) for name, size in self.given.items()}
        try:
            return self.make(**numbers, is_empty=call.is_empty)
        except ArgumentError as error:
            texts = [
                f"{each} with {', '.join(f'{name} = {call.values[name]}' for name in each.names)}"
                for size in self.given.values()
                for each in _expressions(size)
            ]
            if not texts:
                raise
            raise ArgumentError(f"{self.label}: {error.message}; {', '.join(texts)}", hints=error.hints) from None

    def local(self, geometry: Geometry) -> tuple[str, ...] | None:
        """Write a geometry's numbers as arithmetic over one device's axes; None if functions compute the sizes."""
        if any(callable(each) for each in self.given.values()):
            return None
        texts = list(map(str, geometry.encode()))
        for name, start in _PLACES.items():
            for index, part in enumerate(_parts(self.given.get(name)), start):
                if isinstance(part, Expression):
                    per_block = name == "launch_dims"
                    texts[index] = f"ceil(({part})/{geometry.block[index]})" if per_block else part.text
        return tuple(texts)

    def _numbers(self, name: str, size: Any, call: Resolved) -> Any:
        if isinstance(size, Expression):
            return compute(f"{self.label}: {name}", size, call.values)
        if isinstance(size, list):
            return [self._numbers(name, each, call) for each in size]
        return evaluate(f"{name} of {self.label}", size, call.operands)


def read_sizes(
    label: str, sizes: Mapping[str, Any], signature: CallSignature | None, make: Callable[..., Geometry]
) -> Sizes:
    """Read the sizes of a launch.

    Raises
    ------
    ArgumentError
        A size is arithmetic, but no signature names the axes.
    SpecError
        A text is not arithmetic over the signature's axes.
    """
    return Sizes(label, {name: _parse(f"{label}: {name}", size, signature) for name, size in sizes.items()}, make)


def _parse(what: str, size: Any, signature: CallSignature | None) -> Any:
    if isinstance(size, tuple | list):
        parts = [_parse(what, each, signature) for each in size]
        return parts if _expressions(parts) else size
    if not isinstance(size, str):
        return size
    if signature is None:
        raise ArgumentError(
            f"{what}={size!r} is arithmetic over axes, and there is no signature that names them",
            hints=("pass a signature, as in signature='arg[n] ret[n]:like(0)'",),
        )
    try:
        expression = parse_expression(size)
    except ValueError as error:
        raise ArgumentError(f"{what}={size!r}: {error}") from None
    check_names(what, expression, integers(signature.params))
    return expression


def _parts(size: Any) -> list[Any]:
    return size if isinstance(size, list) else [size]


def _expressions(size: Any) -> list[Expression]:
    """Return the expressions in a size of one or several numbers."""
    return [each for each in _parts(size) if isinstance(each, Expression)]


class RawPrototype(NamedTuple):
    """The name and parameters of a kernel.

    Parameters
    ----------
    name, label : str
        Last part of the kernel's name, and the whole name.
    params : tuple of KernelParam
    order : tuple of int, or None
        Number of each pointer's array, counting inputs, outputs and scratch memory; None for pointers in that order.
    """

    name: str
    label: str
    params: tuple[KernelParam, ...]
    order: tuple[int, ...] | None = None


def raw_function(
    prototype: RawPrototype,
    obtain: Callable[[], Obtained],
    signature: object,
    sizes: Mapping[str, Any],
    cluster: Dims | None,
    options: Options,
    report: Report | None = None,
    make: Callable[..., Geometry] = explicit_geometry,
) -> CompiledFunction:
    """Make the function of JAX arrays of a raw kernel from any source of code; see `cuda_kernel`.

    Parameters
    ----------
    prototype : RawPrototype
    obtain : callable
        Function that obtains the kernel, called for each call that is traced.
    signature : str, sequence of str, CallSignature or None
    sizes : mapping of str to Size
        ``grid``, ``block`` and ``shared_mem``.
    cluster : int, tuple of int or None
    options : Options
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    make : callable
        Function that makes the geometry, with the arguments of `explicit_geometry`.
    """
    name, label, params, order = prototype
    pointers = [param.name for param in params if param.is_pointer]
    declared = signature if isinstance(signature, CallSignature) else None
    if declared is None:
        declared = read_signature(label, signature, pointers, scalar_params(params))
    read = read_sizes(label, sizes, declared, partial(make, cluster=cluster))
    read.check(options.outs)

    def make_target(call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        bound = bind_params(label, params, call, scalars, order)
        geometry = read.geometry(call)
        obtained = obtain()
        geometry = geometry._replace(is_cooperative=obtained.kernel.is_cooperative)
        return launcher.launch(obtained, geometry, bound, read.local(geometry))

    doc = f"The GPU kernel {label}; see `be_runtime.cuda_kernel`."
    scalars = scalar_params(params) if declared is None else declared.with_role(Role.ATTR)
    kernel = ArrayKernel(name, label, doc, declared, make_target, scalars, _SCRATCH_UNIT, report)
    return ArrayFunction(kernel, options)


def scalar_params(prototype: Sequence[KernelParam]) -> tuple[Param, ...]:
    """Return the attributes of a call for the scalars of a kernel."""
    return tuple(Param(role=Role.ATTR, name=p.name, dtype=p.dtype) for p in prototype if not p.is_pointer)


def bind_params(
    name: str,
    prototype: Sequence[KernelParam],
    call: Resolved,
    scalars: Mapping[str, Value],
    order: Sequence[int] | None = None,
) -> tuple[LaunchParam, ...]:
    """Bind the parameters of a kernel to the buffers and scalars of one call; see `RawPrototype` for the order.

    Raises
    ------
    ArgumentError
        The call doesn't fit the kernel.
    """
    taken = sum(param.is_pointer for param in prototype)
    groups = {"input": call.inputs, "output": call.shown, "scratch": call.hidden}
    buffers = [(what, number, spec) for what, specs in groups.items() for number, spec in enumerate(specs)]
    if taken != (len(buffers) if order is None else len(order)):
        scratch = f" and {call.scratch} of scratch memory" if call.scratch else ""
        raise ArgumentError(
            f"{name} takes {taken} pointers, but the call has {many(len(call.inputs), 'input')} and "
            f"{many(len(call.shown), 'output')}{scratch}",
            hints=("a kernel's pointers are the inputs of the call, then the outputs, then scratch memory",),
        )
    rest = iter(range(len(buffers)) if order is None else order)
    return tuple(
        _pointer(name, param, at := next(rest), buffers[at]) if param.is_pointer else _scalar(scalars[param.name])
        for param in prototype
    )


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


def _scalar(value: object) -> LaunchParam:
    assert isinstance(value, Numbers), "the scalars of a kernel are numbers"
    return scalar_param(value.data)


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

    The kernel is compiled when JAX first traces it, by NVRTC if it is installed (wheels, conda, a toolkit), else by
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
    grid, block : int, str, tuple of int or str, or callable
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
        True for a kernel whose results differ from call to call; otherwise checked mode reports different results.
    extra_cuda_cflags, extra_include_paths : list, optional
        Options for the compiler, such as ``["-DN=4"]``, and folders of headers.
    use_fast_math : bool
    compute_capability : str or list of str, optional
        Architecture, such as ``"sm_90"``, or several; by default the architectures of the present devices.
    line_info : bool
        True to record the lines of the source for profilers, which leaves the code unchanged.

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
    kernel, options = raw_kernel(locals()), check_options(locals())
    note(repr(kernel))
    asked = check_arch_list(compute_capability, "compute_capability")
    compiled: Memo[Kernel] = Memo()

    def compile_for(session: Session) -> Kernel:
        archs = launcher.choose_archs(asked, session)
        return compiled.get(archs, lambda: build_raw(kernel, archs, session))

    def obtain() -> Obtained:
        session = PROCESS.session()
        again = partial(build_raw, kernel, session=session, with_ptx=True)
        return Obtained(compile_for(session), launcher.own_launcher(session), again)

    def report(block_sizes: Sequence[int] | None) -> ModuleReport:
        from be_runtime.report import check_blocks, report_cubins

        session, blocks = PROCESS.session(), check_blocks(block_sizes)
        cubins = [(image.cuda_arch, image.data) for image in compile_for(session).images if not image.is_ptx]
        return report_cubins(kernel.name.expression, cubins, session.system, blocks)

    sizes = {"grid": grid, "block": block, "shared_mem": shared_mem}
    return raw_function(prototype_of(kernel), obtain, signature, sizes, cluster, options, report)


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


def prototype_of(kernel: RawKernel) -> RawPrototype:
    """Read the prototype of a kernel from its source."""
    return RawPrototype(kernel.name.base, kernel.name.expression, tuple(read_prototype(kernel.source, kernel.name)))


def build_raw(kernel: RawKernel, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
    """Return the compiled kernel, from the cache or compiled now; with PTX too if wanted, see `compile_raw`."""
    compile_now = partial(compile_raw, kernel, archs, session, with_ptx=with_ptx)
    key, origin = raw_key(kernel, archs, session, with_ptx=with_ptx), raw_origin(kernel, archs, session)
    return launcher.obtain_kernel(key, origin, compile_now, kernel.name.expression, session)
