"""`numba_cuda_callable`: a function of JAX arrays that runs Python, which launches any kernels on the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from be_runtime.call.call_options import check_options
from be_runtime.dtypes import DTYPES
from be_runtime.frames import public
from be_runtime.kernels.numba.callable.callback import python_function
from be_runtime.kernels.numba.callable.cuda_arrays import device_array, device_stream, import_cuda
from be_runtime.kernels.numba.callable.rehearsal import rehearse
from be_runtime.kernels.numba.cpu.caller import called_function, host_array_function
from be_runtime.kernels.numba.cpu.compiled import host_functions
from be_runtime.kernels.numba.cpu.signature import Signature
from be_runtime.xla import jax_port

_PREFIX = "be_runtime.callable"
_LACKING = tuple(row.name for row in DTYPES if row.module != "np")
"""Dtypes for which the CUDA array interface has no type string."""


@public
def numba_cuda_callable(
    func: Callable[..., None],
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    graph: bool = False,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Make a function of JAX arrays from Python that launches several Numba CUDA kernels.

    Parameters
    ----------
    func : callable
        Function called as ``func(*inputs, *outputs, stream)``, with Numba device arrays and Numba's stream object for
        XLA's stream. It must launch everything on that stream, and write all of its outputs. Nothing prevents it from
        writing to its inputs: such a write changes the values that other parts of the program see.
    outs, signature
        See `be_runtime.numba_kernel`; scratch memory comes after the outputs.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. Whatever the method, `func` sees the arrays of one element of the batch, and is
        called once for each.
    input_output_aliases : dict of int to int, optional
        Maps the index of an input to that of the output that starts with its content.
    graph : bool
        Let XLA record the launches of `func` into a CUDA graph and replay it without Python. `func` must then launch
        the same work whenever it is called for the same shapes. It is rehearsed on inputs of zeros when it is traced,
        on each device that the process uses, which compiles and loads its kernels. It is refused if CUDA can't record
        it, if it launches nothing on the stream, or if a replay leaves an output unwritten.
    has_side_effect, ordered, input_layouts, output_layouts, random
        See `be_runtime.numba_kernel`.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    ImportError
        Numba's CUDA support is not installed.
    TypeError
        `func` can't be called.
    ArgumentError
        An argument is not allowed. At a call: the number of inputs is wrong, or, with `graph`, `func` can't be
        recorded.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numba import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def double(x, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = 2 * x[i]
    >>> def twice(x, middle, out, stream):
    ...     double[1, 64, stream](x, middle)
    ...     double[1, 64, stream](middle, out)
    >>> shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    >>> fourfold = numba_cuda_callable(twice, (shape, shape))  # doctest: +SKIP
    """
    if not callable(func):
        raise TypeError(f"func must be callable as func(*inputs, *outputs, stream), not {func!r}")
    import_cuda()

    def target_for(name: str, signature: Signature) -> str:
        kind = "graph" if graph else "plain"
        # Arbitrary Python is identified only by the object itself, which lives as long as its target.
        target = f"{_PREFIX}.{name}:{id(func):x}:{kind}:{signature}"
        make = partial(python_function, func, signature, device_array, device_stream, capturable=graph)
        host_functions().add(target, name, signature, make, func, platform=jax_port.PLATFORMS["cuda"])
        return target

    options = check_options(
        outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random=random
    )
    called = called_function(
        func,
        target_for,
        ("the stream",),
        platform="cuda",
        lacking=_LACKING,
        prepare=partial(rehearse, func, dict(options.aliases)) if graph else None,
    )
    return host_array_function(called, signature, options)
