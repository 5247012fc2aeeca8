"""`numba_cuda_kernel`: a Numba CUDA kernel as a JAX function, launched without Python."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.compiled_function import KernelTarget, default_method
from be_runtime.call.function import ArrayKernel, array_function
from be_runtime.call.resolve import Resolved
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import DTYPES
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax.arrays import BATCHING_METHODS, ArraySpec, Value
from be_runtime.kernels.geometry import DEFAULT_THREADS, choose_geometry
from be_runtime.kernels.launcher import (
    Compiled,
    Form,
    Geometry,
    Kernel,
    KernelImage,
    Obtained,
    Origin,
    array_param,
    choose_archs,
    content_id,
    launch,
    new_session,
    obtain_kernel,
    own_launcher,
)
from be_runtime.kernels.numba.source import (
    batched_source,
    check_count,
    check_dtypes,
    direct_writes,
    entry_in_ptx,
    explain_compilation,
    free_axis,
    function_content,
    hints,
    import_error,
    installed_version,
    missing_functions,
    parameter_names,
    without_counts,
)
from be_runtime.kernels.raw import Size, read_sizes
from be_runtime.load.identity import Field, own_code_digest
from be_runtime.load.registry import Session
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock

_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$]+\s*\(([^)]*)\)")
_WORD = re.compile(r"\.param\s+\.[bsu]64\s[^,]*")
_BESIDE_THE_SHAPE = 5


def check_words(ptx: str, ndims: Sequence[int]) -> None:
    """Refuse a kernel that takes arrays in a different form.

    Parameters
    ----------
    ptx : str
        PTX with one kernel.
    ndims : sequence of int
        Numbers of dimensions of the arrays that the kernel takes.

    Raises
    ------
    BuildError
        The kernel does not take such arrays.

    Examples
    --------
    >>> words = ", ".join(f".param .u64 k_param_{i}" for i in range(7))
    >>> check_words(f".visible .entry k({words}) {{ }}", [1])
    """
    entry = _ENTRY.search(ptx)
    declared = [each.strip() for each in entry[1].split(",") if each.strip()] if entry is not None else []
    are_words = entry is not None and all(map(_WORD.fullmatch, declared))
    if not are_words or len(declared) != sum(_BESIDE_THE_SHAPE + 2 * ndim for ndim in ndims):
        raise BuildError(
            f"Numba made a kernel of {len(declared)} parameters for arrays of {tuple(ndims)} dimensions: it passes "
            "arrays in a way that is not known here",
            hints=("pip install 'numba-cuda==0.30.*', which is tested",),
        )


_LACKING = tuple(row.name for row in DTYPES if row.is_for_arrays_only)
"""Dtypes that Numba doesn't have on a GPU."""


class NumbaPrototype(NamedTuple):
    """A kernel as calls see it.

    Parameters
    ----------
    name : str
    parameters : tuple of str
        Names of its arrays; empty without a signature.
    doc : str or None
    """

    name: str
    parameters: tuple[str, ...]
    doc: str | None


def takes_batches(prototype: NumbaPrototype, signature: object, options: Options) -> bool:
    """Return whether a call may have a batch."""
    declared = read_signature(prototype.name, signature, prototype.parameters)
    return default_method(options, declared).vmap_method in BATCHING_METHODS


def numba_function(
    prototype: NumbaPrototype,
    obtain: Callable[[Sequence[ArraySpec], Sequence[ArraySpec]], Obtained],
    signature: object,
    sizes: Mapping[str, Any],
    threads_per_block: int,
    options: Options,
) -> Callable[..., Any]:
    """Make the function of a Numba CUDA kernel, wherever its code is from; see `numba_cuda_kernel`.

    Parameters
    ----------
    prototype : NumbaPrototype
    obtain : callable
        Function of the inputs and outputs of a call that obtains the kernel for them.
    signature : str, sequence of str or None
    sizes : mapping of str to Size
        ``grid``, ``block``, ``launch_dims`` and ``shared_mem``.
    threads_per_block : int
    options : Options
    """
    name = prototype.name
    declared = read_signature(name, signature, prototype.parameters)
    read = read_sizes(name, sizes, declared, partial(choose_geometry, threads_per_block=threads_per_block))
    read.check(options.outs)

    def make_target(call: Resolved, _scalars: Mapping[str, Value]) -> KernelTarget:
        check_dtypes(call.inputs, call.results, _LACKING)
        geometry = read.geometry(call)
        found = obtain(call.inputs, call.results)
        params = [array_param(i, s.ndim, s.dtype.bits) for i, s in enumerate((*call.inputs, *call.results))]
        fitted = _fit(geometry, found.kernel)
        return launch(found, fitted, params, read.local(fitted))

    return array_function(ArrayKernel(name, name, prototype.doc, declared, make_target), options)


def _fit(geometry: Geometry, kernel: Kernel) -> Geometry:
    """Complete the geometry with the properties of the kernel, such as the axis that a batch may use."""
    axis = kernel.batch_axis
    free = axis and geometry.grid[axis] == 1
    return geometry._replace(batch_axis=axis if free else 0, is_cooperative=kernel.is_cooperative)


def types_text(inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> list[str]:
    """Describe the types of arrays: dtypes, and numbers of axes."""
    return [f"const {spec.dtype.name}:{spec.ndim}" for spec in inputs] + [f"{s.dtype.name}:{s.ndim}" for s in outs]


_COMPILING = ThreadLock()
"""Allows one compilation at a time, as Numba does."""

_OPTIONS = ("debug", "lineinfo", "fastmath", "opt", "launch_bounds")
_COOPERATIVE = "cudaCGGetIntrinsicHandle"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_NO_DRIVER = "CUDA driver library cannot be found"
_NO_LIBRARY = re.compile(r"Failure finding \"lib(?:nvrtc|nvJitLink|nvvm)|is an NVIDIA driver library")
_NEEDS_LIBRARIES = (
    "Numba needs NVRTC and nvJitLink, which JAX's CUDA wheels include; without those: pip install nvidia-cuda-nvrtc "
    "nvidia-nvjitlink"
)
_NEEDS_DRIVER = "Numba needs the driver to compile device functions, NumPy's functions and kernels of whole batches"


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

    def types_text(self) -> list[str]:
        """Describe the types of the arrays, for a key."""
        return types_text(self.inputs, self.outs)


class NoKernelError(TypeError, AssertionError):
    """The argument is not a Numba CUDA kernel. The exception is an AssertionError too, for compatibility."""


def check_dispatcher(kernel: object) -> Any:
    """Check that the kernel is a CUDA dispatcher of Numba.

    Raises
    ------
    ImportError
        Numba with CUDA support can't be imported.
    TypeError
        It is something else. The exception is an AssertionError too.
    """
    try:
        import_module("numba_cuda")  # without it, numba.cuda is Numba's own of old
        from numba.cuda.dispatcher import CUDADispatcher
    except (ImportError, AttributeError) as error:
        raise import_error("numba_cuda_kernel", "numba-cuda", error) from error
    if not isinstance(kernel, CUDADispatcher):
        kind = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
        raise NoKernelError(f"kernel must be a function decorated with @cuda.jit, not {kernel!r} ({kind})")
    if kernel.targetoptions.get("device"):
        raise NoKernelError(f"{kernel.py_func.__name__} is a device function; a kernel is decorated with @cuda.jit")
    for option in ("link", "extensions"):
        if kernel.targetoptions.get(option):
            raise ArgumentError(f"the kernel {kernel.py_func.__name__} uses {option}=..., which is not supported here")
    return kernel


def versions() -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    packages = ("numba", "numba-cuda", "llvmlite", "numpy", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-core")
    return tuple(f"{package} {installed_version(package)}" for package in packages)


def compile_numba(kernel: NumbaKernel, archs: Sequence[Arch], *, with_ptx: bool = False) -> tuple[KernelImage, ...]:
    """Compile a kernel for each architecture, and the form that runs a batch in one launch if there is one.

    Parameters
    ----------
    kernel : NumbaKernel
    archs : sequence of Arch
    with_ptx : bool
        True for the PTX of the latest architecture without a suffix too, where nothing has to be linked to it.

    Raises
    ------
    BuildError
        Numba or the linker refuses the kernel.
    ImportError
        Numba does not work with other installed packages.
    """
    latest = max((arch for arch in archs if with_ptx and not arch.suffix), default=None)
    return tuple(image for arch in archs for image in _images(kernel, arch, with_ptx=arch == latest))


def _images(kernel: NumbaKernel, arch: Arch, *, with_ptx: bool) -> list[KernelImage]:
    codes = _compile(kernel, kernel.dispatcher.py_func, arch, extra_axis=False)
    is_cooperative = _COOPERATIVE in codes[0]
    made = _linked(kernel, codes, arch, 0, with_ptx=with_ptx)
    images = [each._replace(is_cooperative=is_cooperative) for each in made]
    axis = free_axis(codes[0])
    if kernel.with_batch and axis and not is_cooperative and all(spec.ndim for spec in _arrays(kernel)):
        batched = _compile(kernel, _batched(kernel, axis), arch, extra_axis=True)
        made = _linked(kernel, batched, arch, 1, with_ptx=with_ptx)
        images += [each._replace(form=Form.BATCH, batch_axis=axis) for each in made]
    return images


def _linked(kernel: NumbaKernel, codes: Sequence[str], arch: Arch, more: int, *, with_ptx: bool) -> list[KernelImage]:
    """Link a kernel whose arrays have `more` axes, and check that it takes arrays as the launcher passes them."""
    check_words(codes[0], [spec.ndim + more for spec in _arrays(kernel)])
    image = _link(kernel, codes, arch)
    if not with_ptx or image.is_ptx or len(codes) > 1 or missing_functions(codes[0]):
        return [image]
    return [image, image._replace(data=codes[0].encode(), is_ptx=True)]


def _arrays(kernel: NumbaKernel) -> tuple[ArraySpec, ...]:
    return (*kernel.inputs, *kernel.outs)


def _batched(kernel: NumbaKernel, axis: int) -> Any:
    """Make the Python function that runs the kernel on slices."""
    from numba import cuda

    options = {name: kernel.dispatcher.targetoptions[name] for name in ("debug", "lineinfo", "fastmath", "opt")}
    namespace: dict[str, Any] = {"cuda": cuda, "kernel": cuda.jit(device=True, **options)(kernel.dispatcher.py_func)}
    name = kernel.name if kernel.name.isidentifier() else "kernel"
    source = batched_source(name, len(_arrays(kernel)), axis)
    exec(source, namespace)  # noqa: S102 - it holds the kernel's name, an identifier, and names of our own
    return namespace[f"{name}_batched"]


def _compile(kernel: NumbaKernel, function: Any, arch: Arch, *, extra_axis: bool) -> list[str]:
    """Compile a function as a kernel to PTX, and return it with the other parts to link, which are PTX too."""
    from numba import cuda

    given = kernel.dispatcher.targetoptions
    options = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    options["debug"] = bool(options.get("debug"))
    signature = tuple(
        _numba_type(spec, index < len(kernel.inputs), extra_axis) for index, spec in enumerate(_arrays(kernel))
    )
    capability = (arch.major, arch.minor, arch.suffix) if arch.suffix else (arch.major, arch.minor)
    try:
        with _compiling_for(arch):
            codes, _ = cuda.compile_all(
                function, signature, device=False, abi="numba", output="ptx", cc=capability, **options
            )
    except Exception as error:
        # Numba's own errors, and any others that its passes raise because of the author's code.
        mismatch = explain_compilation("numba-cuda", error)
        if mismatch:
            raise ImportError(f"Numba can't compile the kernel {kernel.name}: {mismatch}") from error
        raise _refused(kernel, str(error)) from error
    return without_counts([_as_text(code) for code in codes])


@contextlib.contextmanager
def _compiling_for(arch: Arch) -> Iterator[None]:
    """Compile the device functions that a kernel calls for an architecture, whatever device is there, if any."""
    dispatcher: Any = import_module("numba.cuda.dispatcher")
    with _COMPILING:
        usual = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(arch.major, arch.minor))
        try:
            yield
        finally:
            dispatcher.get_current_device = usual


def _refused(kernel: NumbaKernel, text: str) -> BuildError:
    types, text = ", ".join(kernel.types_text()), _COLOURS.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    inputs, outs = ([spec.ndim for spec in specs] for specs in (kernel.inputs, kernel.outs))
    if _NO_LIBRARY.search(text):
        found = [_NEEDS_LIBRARIES]
    else:
        found = [_NEEDS_DRIVER] if _NO_DRIVER in text else hints(kernel.dispatcher.py_func, inputs, outs, text)
    return BuildError(
        f"Numba can't compile the kernel {kernel.name} for ({types})",
        output=text,
        first_error="\n".join(lines[:8]),
        hints=tuple(found[:1]),
    )


def _numba_type(spec: ArraySpec, is_input: bool, extra_axis: bool) -> Any:
    """Return the array type of Numba, which is read-only for inputs."""
    from numba.cuda import types

    name = "boolean" if spec.dtype.name == "bool" else spec.dtype.name
    return types.Array(getattr(types, name), spec.ndim + extra_axis, "C", readonly=is_input)


def _link(kernel: NumbaKernel, codes: Sequence[str], arch: Arch) -> KernelImage:
    """Link Numba's output to machine code; without a linker, return PTX, which the driver compiles."""
    ptx = codes[0]
    entry = entry_in_ptx(ptx)
    missing = missing_functions(ptx)
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
    objects += [ObjectCode.from_library(path) for path in _libraries(missing)]
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


def _as_text(code: Any) -> str:
    """Convert Numba's PTX, which is text, bytes, or an object of cuda.core, to text."""
    if isinstance(code, str):
        return code
    return (code if isinstance(code, bytes) else bytes(code.code)).decode().rstrip("\0")


def _libraries(missing: Sequence[str]) -> list[str]:
    """List the CUDA libraries with the functions that a kernel calls."""
    if not any(name.startswith("cudaCG") for name in missing):
        return []
    from numba.cuda.cudadrv.libs import get_cudalib

    return [str(get_cudalib("cudadevrt", static=True))]


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
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Make a Numba CUDA kernel callable from JAX, launched natively on XLA's stream.

    Numba compiles the kernel when it is first traced. The machine code is kept in the cache, by the content of the
    kernel and of all functions that it calls. No Python runs at a launch, and a CUDA graph can record it.

    Parameters
    ----------
    kernel : CUDADispatcher
        A function decorated with ``@cuda.jit``, called with the inputs, which it can't write to, then the outputs.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        The outputs. A callable is given the inputs' shapes and dtypes. With a `signature`, outputs follow from it.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec: ``"arg[n k] arg[k] ret[n]"``. A token ``scratch[4*n]`` is an array of uint8
        after the outputs.
    grid, block : int, str, tuple of those, or callable, optional
        One to three numbers each, given together. A text is arithmetic over the axes of the signature, such as
        ``"ceil(n/256)"``. A callable is given the inputs' shapes and dtypes.
    launch_dims : int, str, tuple of those, or callable, optional
        Number of threads along each axis, from which `grid` and `block` are computed.
    threads_per_block : int
        Threads of a block for `launch_dims`: 256 gives blocks of 256, 16 x 16 or 8 x 8 x 4. With `grid` and `block`, it
        may only be the size of the block.
    shared_mem : int, str or callable
        Bytes of dynamic shared memory.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. With methods that pass a whole batch, the kernel sees one slice of it, and one
        launch runs the batch if the kernel does not use an axis of the grid. By default ``"broadcast_all"`` if all
        arrays of the signature have leading axes, ``[... n]``, else none.
    input_output_aliases : dict of int to int, optional
        Inputs whose memory an output may use; the kernel still gets both arrays.
    has_side_effect, ordered, input_layouts, output_layouts, random
        See `be_runtime.cuda_kernel`. The kernel indexes the memory of an array as if it were row by row.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays as `outs` describes.

    Raises
    ------
    ImportError
        Numba with CUDA support is not installed, or does not work with the installed numpy.
    TypeError
        `kernel` is not a CUDA dispatcher. The exception is an AssertionError too.
    ArgumentError
        A ValueError: neither or both of the ways to define a launch are used, or a number exceeds CUDA's limits. At a
        call: the kernel can't take the inputs.
    BuildError
        At a call: Numba refuses the kernel, for example because it writes to an input.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numba import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def add_kernel(x, y, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i] + y[i]
    >>> add = numba_cuda_kernel(  # doctest: +SKIP
    ...     add_kernel, outs=jax.ShapeDtypeStruct((1024,), jnp.float32), launch_dims=1024
    ... )
    """
    dispatcher = check_dispatcher(kernel)
    prototype = prototype_of(dispatcher, signature)
    options = check_options(
        outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random=random
    )
    variants = _Variants(dispatcher, with_batch=takes_batches(prototype, signature, options))

    def obtain(inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> Obtained:
        session = new_session()
        again = partial(build_numba, variants.kernel(inputs, outs), session=session, with_ptx=True)
        return Obtained(variants.get(inputs, outs, session), own_launcher(session), again)

    sizes = {"grid": grid, "block": block, "launch_dims": launch_dims, "shared_mem": shared_mem}
    return numba_function(prototype, obtain, signature, sizes, threads_per_block, options)


def prototype_of(dispatcher: Any, signature: object) -> NumbaPrototype:
    """Read the prototype of a kernel."""
    function = dispatcher.py_func
    return NumbaPrototype(function.__name__, () if signature is None else parameter_names(function), function.__doc__)


class _Variants:
    """The kernels for each combination of array types and architectures, obtained on first use."""

    def __init__(self, dispatcher: Any, *, with_batch: bool) -> None:
        self._dispatcher = dispatcher
        self._with_batch = with_batch
        self._made: dict[object, Kernel] = {}
        self._lock = ThreadLock()

    def kernel(self, inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> NumbaKernel:
        """Return the kernel for these arrays, not compiled."""
        return NumbaKernel(self._dispatcher, tuple(inputs), tuple(outs), self._with_batch)

    def get(self, inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec], session: Session) -> Kernel:
        """Return the kernel for these arrays and for the current devices of the process."""
        kernel = self.kernel(inputs, outs)
        check_arrays(kernel)
        archs = choose_archs(None, session)
        known = (tuple(kernel.types_text()), archs)
        with self._lock:
            if known not in self._made:
                self._made[known] = build_numba(kernel, archs, session)
            return self._made[known]


def check_arrays(kernel: NumbaKernel) -> None:
    """Check that a kernel takes its arrays, and that its bytecode shows no writes to inputs that Numba allows."""
    function = kernel.dispatcher.py_func
    names = check_count(function, len(kernel.inputs), len(kernel.outs))
    written = direct_writes(function)
    name = next((each for each in names[: len(kernel.inputs)] if each in written), None)
    if name is not None:
        raise ArgumentError(
            f"the kernel {function.__name__} has {written[name]} on the input {name}",
            hints=("an input can't be written: use an output, and input_output_aliases to work in place",),
        )


def build_numba(kernel: NumbaKernel, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
    """Return the compiled kernel, from the cache if its content is the same in every process.

    Parameters
    ----------
    with_ptx : bool
        True for PTX too, see `compile_numba`.
    """
    content = function_content(kernel.dispatcher)
    if content.anchors:
        images = compile_numba(kernel, archs, with_ptx=with_ptx)
        return Kernel(content_id(images), kernel.name, images)
    fields = _fields(kernel, archs, content.digest)
    return obtain_kernel(
        make_key("numba-cuda", *fields, ("ptx", str(with_ptx)), ("generator", own_code_digest())),
        Origin(make_key("numba-cuda", *fields)),
        lambda _staging: Compiled(compile_numba(kernel, archs, with_ptx=with_ptx)),
        kernel.name,
        session,
    )


def _fields(kernel: NumbaKernel, archs: Sequence[Arch], content: str) -> tuple[Field, ...]:
    return (
        ("name", kernel.name),
        ("content", content),
        ("types", kernel.types_text()),
        ("batch", str(kernel.with_batch)),
        ("archs", [arch.sm for arch in archs]),
        ("versions", versions()),
    )
