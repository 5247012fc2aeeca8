"""`numba_cuda_kernel`: compile a Numba CUDA kernel and make it a function of JAX arrays, launched without Python."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple, Unpack

from be_runtime.call.array_function import ArrayFunction, ArrayKernel
from be_runtime.call.attributes import KernelOptions, Options, check_options
from be_runtime.call.compiled_function import default_method
from be_runtime.call.resolve import Resolved
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import DTYPES
from be_runtime.errors import ArgumentError, BuildError, refuse_unknown
from be_runtime.frames import public
from be_runtime.jax.arrays import BATCHING_METHODS, ArraySpec, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.content import function_content
from be_runtime.kernels.geometry import DEFAULT_THREADS, array_param, choose_geometry
from be_runtime.kernels.launcher import Compiled, Form, Kernel, KernelImage, Origin
from be_runtime.kernels.numba import source
from be_runtime.kernels.sizes import Size, read_sizes
from be_runtime.kernels.source import Bound, Code, CompiledCode, GpuSource, Launch, Variant
from be_runtime.load.identity import Field, own_code_digest
from be_runtime.load.registry import Session
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock


class NumbaPackage(NamedTuple):
    """A package that compiles kernels for CUDA, with its differences from other such packages.

    Parameters
    ----------
    name : str
        Name on the package index.
    api : str
        Module with ``jit``.
    inner : str
        Package of its other modules.
    others : tuple of str
        Packages that affect the code, too.
    words : int
        Parameters of an array beside its shape and strides.
    tested : str
        Version for hints.
    """

    name: str
    api: str
    inner: str
    others: tuple[str, ...]
    words: int
    tested: str

    @property
    def is_mlir(self) -> bool:
        """Return whether the package passes arrays as MLIR does."""
        return self is MLIR


NUMBA_CUDA = NumbaPackage("numba-cuda", "numba.cuda", "numba.cuda", ("numba", "llvmlite"), 5, "numba-cuda==0.30.*")
MLIR = NumbaPackage(
    *("numba-cuda-mlir", "numba_cuda_mlir.cuda", "numba_cuda_mlir.numba_cuda", (), 3, "numba-cuda-mlir==0.6.*")
)


def package_of(dispatcher: object) -> NumbaPackage:
    """Return the package of a dispatcher."""
    return MLIR if type(dispatcher).__module__.partition(".")[0] == "numba_cuda_mlir" else NUMBA_CUDA


_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$]+\s*\(([^)]*)\)")
_WORD = re.compile(r"\.param\s+\.[bsu]64\s[^,]*")

_LACKING = tuple(row.name for row in DTYPES if row.is_for_arrays_only)
"""Dtypes that Numba doesn't have on a GPU."""

_COMPILING = ThreadLock()
"""Allows one compilation at a time, as Numba does."""

_OPTIONS = ("debug", "lineinfo", "fastmath", "opt", "launch_bounds")
_COOPERATIVE = "cudaCGGetIntrinsicHandle"
_COLORS = re.compile(r"\x1b\[[\d;]*m")
_NO_DRIVER = "CUDA driver library cannot be found"
_NO_LIBRARY = re.compile(r"Failure finding \"lib(?:nvrtc|nvJitLink|nvvm)|is an NVIDIA driver library")

_NEEDS_LIBRARIES = (
    "Numba needs NVRTC and nvJitLink, which JAX's CUDA wheels include; without those: pip install nvidia-cuda-nvrtc "
    "nvidia-nvjitlink"
)

_OF_NUMBA_ITSELF = (
    "Numba's own @cuda.jit is not supported: write `from numba_cuda_mlir import cuda`, or pip install numba-cuda"
)

_MLIR_LACKS = (
    "numba-cuda-mlir lacks features of numba-cuda, such as x.strides, x.flat, x.T, np.sqrt and cuda.random; "
    "numba-cuda has them: pip install numba-cuda 'numpy<2.5'"
)

_NEEDS_DRIVER = "Numba needs the driver to compile device functions, NumPy's functions and kernels of whole batches"


def check_words(ptx: str, ndims: Sequence[int], package: NumbaPackage = NUMBA_CUDA) -> None:
    """Refuse a kernel whose PTX takes arrays in an unsupported form.

    Parameters
    ----------
    ptx : str
        PTX with one kernel.
    ndims : sequence of int
        Numbers of dimensions of the kernel's arrays.
    package : NumbaPackage

    Raises
    ------
    BuildError
        The kernel's parameters don't fit the arrays.

    Examples
    --------
    >>> words = ", ".join(f".param .u64 k_param_{i}" for i in range(7))
    >>> check_words(f".visible .entry k({words}) {{ }}", [1])
    """
    entry = _ENTRY.search(ptx)
    declared = [each.strip() for each in entry[1].split(",") if each.strip()] if entry is not None else []
    if not all(map(_WORD.fullmatch, declared)) or len(declared) != sum(package.words + 2 * ndim for ndim in ndims):
        raise BuildError(
            f"Numba made a kernel of {len(declared)} parameters for arrays of {tuple(ndims)} dimensions, and "
            "this release does not support how it passes arrays",
            hints=(f"pip install '{package.tested}', which is tested",),
        )


class NumbaLayout(NamedTuple):
    """The name, parameters and docstring of a kernel that takes arrays with their shapes.

    Parameters
    ----------
    name : str
    parameters : tuple of str
        Names of its arrays; empty without a signature.
    doc : str or None
    is_memref : bool
        True if arrays are passed as MLIR's memrefs.
    """

    name: str
    parameters: tuple[str, ...]
    doc: str | None
    is_memref: bool = False

    def bind(self, call: Resolved, _scalars: Mapping[str, Value]) -> Bound:
        """Describe each array of a call."""
        source.check_dtypes(call.inputs, call.results, _LACKING)
        params = tuple(
            array_param(i, spec.ndim, spec.dtype.bits, is_memref=self.is_memref)
            for i, spec in enumerate((*call.inputs, *call.results))
        )
        return Bound(params, tuple(types_text(call.inputs, call.results)))

    def fit(self, launch: Launch, kernel: Kernel, _call: Resolved) -> Launch:
        """Give a batch an axis of the grid, if the images leave an axis free."""
        axis = kernel.batch_axis
        return launch.with_geometry(batch_axis=axis if axis and launch.geometry.grid[axis] == 1 else 0)


def takes_batches(layout: NumbaLayout, signature: object, options: Options) -> bool:
    """Return whether a call may have a batch."""
    declared = read_signature(layout.name, signature, layout.parameters)
    return default_method(options, declared).vmap_method in BATCHING_METHODS


def numba_function(
    layout: NumbaLayout, code: Code, signature: object, sizes: Mapping[str, Any], options: Options
) -> ArrayFunction:
    """Make the function of JAX arrays of a Numba CUDA kernel from any source of code; see `numba_cuda_kernel`.

    Parameters
    ----------
    layout : NumbaLayout
    code : Code
    signature : str, sequence of str or None
    sizes : mapping of str to Size
        The arguments of `choose_geometry`.
    options : Options
    """
    declared = read_signature(layout.name, signature, layout.parameters)
    made = GpuSource(layout, code, read_sizes(layout.name, sizes, declared, choose_geometry))
    made.sizes.check(options.outs)
    return ArrayFunction(ArrayKernel(layout.name, layout.name, layout.doc, declared, made), options)


def types_text(inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> list[str]:
    """Describe the dtypes and ranks of arrays."""
    return [f"const {spec.dtype.name}:{spec.ndim}" for spec in inputs] + [f"{s.dtype.name}:{s.ndim}" for s in outs]


class NumbaKernel(NamedTuple):
    """A kernel for arrays of certain types.

    Parameters
    ----------
    dispatcher : CUDADispatcher
    inputs, outs : tuple of ArraySpec
        Arrays of the kernel; their shapes do not matter.
    with_batch : bool
        True if a call may have a batch.
    """

    dispatcher: Any
    inputs: tuple[ArraySpec, ...]
    outs: tuple[ArraySpec, ...]
    with_batch: bool

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.dispatcher.py_func.__name__)

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """The inputs and outputs."""
        return (*self.inputs, *self.outs)

    def types_text(self) -> list[str]:
        """Describe the types of the arrays, for a key."""
        return types_text(self.inputs, self.outs)

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
        """Return the compiled kernel, from the cache if its content is equal in all processes."""
        content = function_content(self.dispatcher)

        def compile_now(_staging: object) -> Compiled:
            return Compiled(compile_numba(self, archs, with_ptx=with_ptx))

        if content.anchors:
            return launcher.compile_uncached(self.name, session, compile_now)
        fields: tuple[Field, ...] = (
            *(("name", self.name), ("content", content.digest), ("types", self.types_text())),
            *(("batch", str(self.with_batch)), ("archs", [arch.sm for arch in archs])),
            ("versions", versions(package_of(self.dispatcher))),
        )
        return launcher.obtain_kernel(
            make_key("numba-cuda", *fields, ("ptx", str(with_ptx)), ("generator", own_code_digest())),
            Origin(make_key("numba-cuda", *fields)),
            compile_now,
            self.name,
            session,
        )


class NoKernelError(TypeError, AssertionError):
    """The argument is not a Numba CUDA kernel. Programs for brainevent may catch an AssertionError."""


def check_dispatcher(kernel: Any) -> Any:
    """Check that the kernel is a CUDA dispatcher of numba-cuda or of numba-cuda-mlir.

    Raises
    ------
    ImportError
        Numba with CUDA support can't be imported.
    TypeError
        The argument is not a CUDA dispatcher.
    """
    dispatchers: Any = ()
    if package_of(kernel).is_mlir:
        dispatchers = (import_module("numba_cuda_mlir.descriptor").MLIRDispatcher,)
    elif source.import_cuda("numba_cuda_kernel").__name__ == NUMBA_CUDA.api:
        dispatchers = (import_module("numba.cuda.dispatcher").CUDADispatcher,)
    if not isinstance(kernel, dispatchers):
        kind = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
        remedy = f"; {_OF_NUMBA_ITSELF}" if kind == "numba.cuda.dispatcher.CUDADispatcher" else ""
        raise NoKernelError(f"kernel must be a function decorated with @cuda.jit, not {kernel!r} ({kind}){remedy}")
    if kernel.targetoptions.get("device"):
        raise NoKernelError(f"{kernel.py_func.__name__} is a device function; a kernel is decorated with @cuda.jit")
    for option in ("link", "extensions"):
        if kernel.targetoptions.get(option):
            raise ArgumentError(f"the kernel {kernel.py_func.__name__} uses {option}=..., which is not supported here")
    return kernel


def versions(package: NumbaPackage) -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    names = (package.name, *package.others, "numpy", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-core")
    return tuple(f"{name} {source.installed_version(name)}" for name in names)


def compile_numba(kernel: NumbaKernel, archs: Sequence[Arch], *, with_ptx: bool = False) -> tuple[KernelImage, ...]:
    """Compile a kernel for each architecture; if possible, also in the form that runs a batch in one launch.

    Parameters
    ----------
    kernel : NumbaKernel
    archs : sequence of Arch
    with_ptx : bool
        True to add PTX of the latest architecture without a suffix, if nothing must be linked to it.

    Raises
    ------
    BuildError
        Numba or the linker can't compile the kernel.
    ImportError
        Numba does not work with other installed packages.
    """
    latest = launcher.ptx_arch(archs, with_ptx=with_ptx)
    return tuple(image for arch in archs for image in _images(kernel, arch, with_ptx=arch == latest))


def _images(kernel: NumbaKernel, arch: Arch, *, with_ptx: bool) -> list[KernelImage]:
    codes = _compile(kernel, kernel.dispatcher.py_func, arch, extra_axis=False)
    is_cooperative = _COOPERATIVE in codes[0]
    made = _linked(kernel, codes, arch, 0, with_ptx=with_ptx)
    images = [each._replace(is_cooperative=is_cooperative) for each in made]
    axis = source.free_axis(codes[0])
    if kernel.with_batch and axis and not is_cooperative and all(spec.ndim for spec in kernel.arrays):
        batched = _compile(kernel, _batched(kernel, axis), arch, extra_axis=True)
        made = _linked(kernel, batched, arch, 1, with_ptx=with_ptx)
        images += [each._replace(form=Form.BATCH, batch_axis=axis) for each in made]
    return images


def _linked(kernel: NumbaKernel, codes: Sequence[str], arch: Arch, more: int, *, with_ptx: bool) -> list[KernelImage]:
    """Link a kernel whose arrays have `more` axes, and check that it takes arrays as the launcher passes them."""
    check_words(codes[0], [spec.ndim + more for spec in kernel.arrays], package_of(kernel.dispatcher))
    image = _link(kernel, codes, arch)
    if not with_ptx or image.is_ptx or len(codes) > 1 or source.missing_functions(codes[0]):
        return [image]
    return [image, image._replace(data=codes[0].encode(), is_ptx=True)]


def _batched(kernel: NumbaKernel, axis: int) -> Any:
    """Make the Python function that runs the kernel on slices."""
    cuda = import_module(package_of(kernel.dispatcher).api)
    options = {name: kernel.dispatcher.targetoptions[name] for name in ("debug", "lineinfo", "fastmath", "opt")}
    if package_of(kernel.dispatcher).is_mlir:
        options["inline"] = "always"  # otherwise a call with slices refuses shared memory in the function
    namespace: dict[str, Any] = {"cuda": cuda, "kernel": cuda.jit(device=True, **options)(kernel.dispatcher.py_func)}
    name = kernel.name if kernel.name.isidentifier() else "kernel"
    text = source.batched_source(name, len(kernel.arrays), axis)
    exec(text, namespace)  # noqa: S102 - it holds the kernel's name, an identifier, and names of our own
    return namespace[f"{name}_batched"]


def _compile(kernel: NumbaKernel, function: Any, arch: Arch, *, extra_axis: bool) -> list[str]:
    """Compile a function as a kernel to PTX, and return the PTX and further PTX to link."""
    package = package_of(kernel.dispatcher)
    cuda, types = import_module(package.api), import_module(f"{package.inner}.types")
    given = kernel.dispatcher.targetoptions
    options = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    options["debug"] = bool(options.get("debug"))
    names = ["boolean" if spec.dtype.name == "bool" else spec.dtype.name for spec in kernel.arrays]
    signature = tuple(
        types.Array(getattr(types, name), spec.ndim + extra_axis, "C", readonly=index < len(kernel.inputs))
        for index, (name, spec) in enumerate(zip(names, kernel.arrays, strict=True))
    )
    capability = (arch.major, arch.minor, arch.suffix) if arch.suffix else (arch.major, arch.minor)
    with _COMPILING, _device(package, arch):
        try:
            if package.is_mlir:
                codes = [cuda.compile(function, signature, device=False, abi="numba", cc=capability, **options)[0]]
            else:
                codes, _ = cuda.compile_all(
                    function, signature, device=False, abi="numba", output="ptx", cc=capability, **options
                )
        except Exception as error:
            # Numba raises its own errors, and its passes raise any others because of the author's code.
            mismatch = source.explain_compilation(package.name, error)
            if mismatch:
                raise ImportError(f"Numba can't compile the kernel {kernel.name}: {mismatch}") from error
            raise _refused(kernel, str(error)) from error
    texts = [code if isinstance(code, bytes | str) else bytes(code.code) for code in codes]  # or cuda.core's objects
    return source.without_counts([text if isinstance(text, str) else text.decode().rstrip("\0") for text in texts])


@contextlib.contextmanager
def _device(package: NumbaPackage, arch: Arch) -> Iterator[None]:
    """Set the architecture for which Numba compiles, regardless of the present device."""
    capability = (arch.major, arch.minor)
    if package.is_mlir:
        module, name, present = "numba_cuda_mlir.tools", "_cached_cc", capability
    else:
        module, name, present = "numba.cuda.dispatcher", "get_current_device", _present(capability)
    place = sys.modules.get(module)
    if not hasattr(place, name):
        raise BuildError(
            f"{package.name} {source.installed_version(package.name)} is not supported: this release does not find "
            "how it chooses an architecture",
            hints=(f"pip install '{package.tested}', which is tested",),
        )
    usual = getattr(place, name)
    setattr(place, name, present)
    try:
        yield
    finally:
        setattr(place, name, usual)


def _present(capability: tuple[int, int]) -> Any:
    return lambda: SimpleNamespace(compute_capability=capability)


def _refused(kernel: NumbaKernel, text: str) -> BuildError:
    text = _COLORS.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    inputs, outs = ([spec.ndim for spec in specs] for specs in (kernel.inputs, kernel.outs))
    found = source.hints(kernel.dispatcher.py_func, inputs, outs, text)
    if _NO_LIBRARY.search(text) or _NO_DRIVER in text:
        found = [_NEEDS_LIBRARIES if _NO_LIBRARY.search(text) else _NEEDS_DRIVER]
    elif package_of(kernel.dispatcher).is_mlir:
        found = [*found, _MLIR_LACKS]
    return BuildError(
        f"Numba can't compile the kernel {kernel.name} for ({', '.join(kernel.types_text())})",
        output=text,
        first_error="\n".join(lines[:8]),
        hints=tuple(found[:1]),
    )


def _link(kernel: NumbaKernel, codes: Sequence[str], arch: Arch) -> KernelImage:
    """Link Numba's output to machine code; without a linker, return PTX, which the driver compiles."""
    ptx = codes[0]
    entry = source.entry_in_ptx(ptx)
    missing = source.missing_functions(ptx)
    parts = [code.encode() for code in codes]
    try:
        from cuda.core import Linker, LinkerOptions, ObjectCode
    except ImportError:
        if missing:
            raise BuildError(
                f"{kernel.name} needs the functions {', '.join(missing)}, and cuda-core to link them"
            ) from None
        return KernelImage(arch, entry, parts[0], is_ptx=True)
    objects = [ObjectCode.from_ptx(part) for part in parts]
    if any(name.startswith("cudaCG") for name in missing):
        libs = import_module(f"{package_of(kernel.dispatcher).inner}.cudadrv.libs")
        objects.append(ObjectCode.from_library(str(libs.get_cudalib("cudadevrt", static=True))))
    registers = kernel.dispatcher.targetoptions.get("max_registers")
    try:
        linker = Linker(*objects, options=LinkerOptions(arch=arch.sm, max_register_count=registers))
        return KernelImage(arch, entry, bytes(linker.link("cubin").code))
    except Exception as error:
        raise BuildError(
            f"the kernel {kernel.name} can't be linked for {arch.sm}",
            output=str(error),
            hints=(_NEEDS_LIBRARIES,) if _NO_LIBRARY.search(str(error)) else (),
        ) from error


@public
def numba_cuda_kernel(
    kernel: Any,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    grid: Size | None = None,
    block: Size | None = None,
    launch_dims: Size | None = None,
    threads_per_block: int = DEFAULT_THREADS,
    shared_mem: Size = 0,
    **call_options: Unpack[KernelOptions],
) -> ArrayFunction:
    """Make a Numba CUDA kernel callable from JAX. Native code launches the kernel on XLA's stream.

    Numba compiles the kernel when JAX first traces a call. The cache keeps the machine code. If the kernel or a
    function that the kernel calls changes, Numba compiles the kernel again. A launch runs no Python, and CUDA graphs
    can record the launch.

    Parameters
    ----------
    kernel : CUDADispatcher
        Function decorated with ``@cuda.jit`` from numba-cuda or its successor numba-cuda-mlir. The function takes the
        inputs and then the results. The function can't write to the inputs.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec, such as ``"arg[n k] arg[k] ret[n]"``. For a token ``scratch[4*n]``, the
        kernel takes one more argument after the results: an array of ``4*n`` uint8 elements.
    grid : int, str, tuple of int or str, or callable, optional
        Number of blocks along one to three axes. A string is arithmetic over the axes of the signature, such as
        ``"ceil(n/256)"``. A callable receives the shapes and dtypes of the inputs.
    block : int, str, tuple of int or str, or callable, optional
        Number of threads per block along one to three axes, in the same form as `grid`. Pass either `grid` and `block`,
        or `launch_dims`.
    launch_dims : int, str, tuple of int or str, or callable, optional
        Number of threads along one to three axes, from which `grid` and `block` are computed.
    threads_per_block : int, default 256
        Number of threads per block for `launch_dims`: 256 means blocks of 256, 16 x 16 or 8 x 8 x 4 threads.
    shared_mem : int, str or callable, default 0
        Dynamic shared memory per block, in bytes.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. Each thread of the kernel sees the arrays of one element of
        the batch. With ``"broadcast_all"`` or ``"expand_dims"``, a call passes the whole batch. Native code then
        usually launches the kernel once for each element. Under the conditions in :doc:`/kernels`, a single launch runs
        the kernel for all elements. If the axes of each array in the signature begin with ``...``, the default is
        ``"broadcast_all"``. If all arrays have axes in the signature, but the axes of an array begin differently, the
        default is ``"sequential"``. If an array has no axes in the signature, ``vmap`` needs this argument.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of the result that may share the input's memory. The kernel
        gets the input and the result.
    has_side_effect : bool, default False
        Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    input_layouts : sequence of (sequence of int or None), optional
        Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel reads this memory as a
        row-major array with the input's shape. If an input ``x`` equals ``[[1, 2, 3], [4, 5, 6]]`` and has the layout
        ``(1, 0)``, the kernel's array is ``[[1, 4, 2], [5, 3, 6]]``, which is ``x.T.reshape(x.shape)``.
    output_layouts : sequence of (sequence of int or None), optional
        Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel writes this memory as
        a row-major array with the result's shape. If a result ``y`` has the layout ``(1, 0)``, the kernel's array
        equals ``y.T.reshape(y.shape)``.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    ImportError
        Numba with CUDA support is not installed, or does not work with the installed NumPy.
    TypeError
        `kernel` is not decorated with ``@cuda.jit``.
    ArgumentError
        Both `grid` and `launch_dims` are given, or neither is given, or a number exceeds CUDA's limits. At a call: the
        kernel can't take the inputs, or writes to an input.
    BuildError
        At a call: Numba can't compile the kernel.

    See Also
    --------
    - `numba_cuda_callable`: launch several kernels from Python.
    - :doc:`/kernels`: launch sizes, attributes, scratch memory and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> from numba_cuda_mlir import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def add_kernel(x, y, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i] + y[i]
    >>> add = be_runtime.numba_cuda_kernel(
    ...     add_kernel, signature="arg[n] arg[n] ret[n]", launch_dims="n"
    ... )  # doctest: +SKIP
    >>> add(jnp.ones(4), jnp.ones(4))  # doctest: +SKIP
    """
    dispatcher = check_dispatcher(kernel)
    layout = layout_of(dispatcher, signature)
    refuse_unknown(call_options, KernelOptions, "numba_cuda_kernel")
    options = check_options({"outs": outs, **call_options})
    code = NumbaCode(dispatcher, with_batch=takes_batches(layout, signature, options))
    sizes = {
        "grid": grid,
        "block": block,
        "launch_dims": launch_dims,
        "threads_per_block": threads_per_block,
        "shared_mem": shared_mem,
    }
    return numba_function(layout, code, signature, sizes, options)


class NumbaCode(CompiledCode):
    """The images of a kernel for each combination of dtypes and ranks.

    Parameters
    ----------
    dispatcher : CUDADispatcher
    with_batch : bool
        See `NumbaKernel`.
    """

    def __init__(self, dispatcher: Any, *, with_batch: bool) -> None:
        super().__init__()
        self._dispatcher, self._with_batch = dispatcher, with_batch

    def compilable(self, call: Resolved, _variant: Variant) -> NumbaKernel:
        """Return the checked kernel for the arrays of a call."""
        kernel = NumbaKernel(self._dispatcher, call.inputs, call.results, self._with_batch)
        check_arrays(kernel)
        return kernel


def layout_of(dispatcher: Any, signature: object) -> NumbaLayout:
    """Read the name, parameters and docstring of a kernel."""
    function = dispatcher.py_func
    parameters = () if signature is None else source.parameter_names(function)
    return NumbaLayout(function.__name__, parameters, function.__doc__, package_of(dispatcher).is_mlir)


def check_arrays(kernel: NumbaKernel) -> None:
    """Check that a kernel takes its arrays, and by its bytecode that it does not write to inputs as Numba allows."""
    function = kernel.dispatcher.py_func
    names = source.check_count(function, len(kernel.inputs), len(kernel.outs))
    written = source.direct_writes(function)
    for name in names[: len(kernel.inputs)]:
        if name in written:
            raise ArgumentError(
                f"the kernel {function.__name__} has {written[name]} on the input {name}",
                hints=("an input can't be written: use an output, and input_output_aliases to work in place",),
            )
