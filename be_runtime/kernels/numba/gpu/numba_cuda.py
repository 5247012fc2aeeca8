"""`numba_cuda_kernel`: a Numba CUDA kernel as a JAX function, launched without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from be_runtime.cache import make_key
from be_runtime.call.call_options import check_options
from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.kernels.cuda.calls import Obtained, choose_archs, new_session
from be_runtime.kernels.cuda.describe import Kernel, content_id
from be_runtime.kernels.cuda.geometry import DEFAULT_THREADS
from be_runtime.kernels.cuda.images import Compiled, Origin, obtain_kernel
from be_runtime.kernels.cuda.launcher import own_launcher
from be_runtime.kernels.cuda.sizes import Size
from be_runtime.kernels.numba.function_content import function_content
from be_runtime.kernels.numba.gpu.numba_calls import NumbaPrototype, numba_function, takes_batches
from be_runtime.kernels.numba.gpu.numba_compiler import NumbaKernel, check_dispatcher, compile_numba, versions
from be_runtime.kernels.numba.numba_source import check_count, direct_writes, parameter_names
from be_runtime.load.identity import Field
from be_runtime.load.own_code import own_code_digest
from be_runtime.load.session import Session
from be_runtime.xla.arrays import ArraySpec
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock


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
