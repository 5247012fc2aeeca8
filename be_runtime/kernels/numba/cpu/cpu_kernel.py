"""`numba_kernel`: a function of JAX arrays that runs a Numba CPU kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from be_runtime.dtypes import DTYPES
from be_runtime.kernels.numba.cpu.caller import Called, array_function
from be_runtime.kernels.numba.cpu.compiled import host_functions
from be_runtime.kernels.numba.cpu.compiler import check_kernel, compile_entry, versions
from be_runtime.kernels.numba.cpu.signature import Signature
from be_runtime.kernels.numba.function_content import function_content

_PREFIX = "be_runtime.numba"
"""Begins the names of the targets."""

_LACKING = tuple(row.name for row in DTYPES if row.is_narrow)
"""What Numba doesn't have on the CPU."""


def numba_kernel(
    kernel: Any,
    outs: Any,
    *,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
) -> Callable[..., Any]:
    """Make a function of JAX arrays from a Numba CPU kernel.

    The kernel is compiled to a C function when the result is traced, once for each combination of dtypes and numbers
    of dimensions. A call runs it without Python and without the GIL.

    Parameters
    ----------
    kernel : function decorated with ``@numba.njit``
        Called with the inputs, then the outputs, as C-contiguous arrays. It can't write its inputs, and has to write
        all of its outputs, which hold anything before. It returns nothing.
    outs : ShapeDtypeStruct or pytree of them
        The shape and dtype of each result.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. Whatever the method, the kernel sees the arrays of one element of the batch:
        ``"broadcast_all"`` and ``"expand_dims"`` run it for all elements within one call, ``"sequential"`` in a loop
        of XLA.
    input_output_aliases : dict of int to int, optional
        From the index of an input to that of the output that begins with its content.

    Returns
    -------
    callable
        Takes the inputs, gives back arrays in the structure of `outs`.

    Raises
    ------
    TypeError
        The kernel is no CPU function of ``@numba.njit``.
    ImportError
        Numba is not installed.
    ArgumentError
        An argument is not allowed; when the result is called also a wrong number of inputs, or one that Numba has no
        dtype for.
    BuildError
        When the result is called: Numba can't compile the kernel, for example because it writes an input.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import numba
    >>> @numba.njit
    ... def add(x, y, out):
    ...     for i in range(out.size):
    ...         out[i] = x[i] + y[i]
    >>> x = jnp.arange(3, dtype=jnp.float32)
    >>> jax.jit(numba_kernel(add, jax.ShapeDtypeStruct(x.shape, x.dtype)))(x, x).tolist()
    [0.0, 2.0, 4.0]
    """
    dispatcher = check_kernel(kernel)
    name = dispatcher.py_func.__name__
    content = functools.cache(partial(function_content, dispatcher))

    def target_for(signature: Signature) -> str:
        digest = hashlib.sha256("\0".join((content().digest, str(signature), *versions())).encode()).hexdigest()
        target = f"{_PREFIX}.{name}:{digest}"
        make = partial(compile_entry, dispatcher, signature)
        host_functions().add(target, name, signature, make, *content().anchors)
        return target

    return array_function(
        Called(dispatcher.py_func, target_for, lacking=_LACKING), outs, vmap_method, input_output_aliases
    )
