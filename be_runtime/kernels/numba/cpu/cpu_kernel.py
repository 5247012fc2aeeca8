"""`numba_kernel`: a function of JAX arrays that runs a Numba CPU kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from be_runtime.bundle.carried import Carried, Demand
from be_runtime.call.call_options import check_options
from be_runtime.frames import public
from be_runtime.kernels.numba.cpu.caller import called_function, host_array_function
from be_runtime.kernels.numba.cpu.compiled import host_functions
from be_runtime.kernels.numba.cpu.compiler import check_kernel, compile_entry, versions
from be_runtime.kernels.numba.cpu.signature import LACKING, Signature
from be_runtime.kernels.numba.function_content import function_content
from be_runtime.load.process import PROCESS

_PREFIX = "be_runtime.numba"
"""Start of the names of the targets."""


@public
def numba_kernel(
    kernel: Any,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Make a function of JAX arrays from a Numba CPU kernel.

    The kernel is compiled to a C function when the result is traced, once for each combination of dtypes and numbers
    of dimensions. A call runs it without Python and without the GIL.

    Parameters
    ----------
    kernel : function decorated with ``@numba.njit``
        Kernel, called with the inputs, then the outputs, as C-contiguous arrays. It can't write to its inputs, and must
        write all of its outputs, which are uninitialised. It returns nothing.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result. A callable is given the inputs' shapes and dtypes. With a `signature`, results
        follow from it.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec: ``"arg[n k] arg[k] ret[n]"``. A token ``scratch[4*n]`` is an array of uint8
        after the outputs.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. Whatever the method, the kernel sees the arrays of one element of the batch:
        ``"broadcast_all"`` and ``"expand_dims"`` run it for all elements in one call, ``"sequential"`` in a loop of
        XLA. By default ``"broadcast_all"`` if all arrays of the signature have leading axes, ``[... n]``, else none.
    input_output_aliases : dict of int to int, optional
        Maps the index of an input to that of the output that starts with its content.
    has_side_effect : bool
        True to run the kernel even if its results are not used. The order of such calls is XLA's choice.
    ordered : bool
        True to run all such calls in the order of the program; it implies `has_side_effect`.
    input_layouts, output_layouts : sequence of (sequence of int or None), optional
        Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel indexes that memory as
        if it were row by row.
    random : bool
        True for a kernel whose results differ from call to call; else checked mode reports that.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    TypeError
        The kernel is not a CPU function of ``@numba.njit``.
    ImportError
        Numba is not installed.
    ArgumentError
        An argument is not allowed. At a call: the arrays are not as declared, or Numba lacks the dtype of an input.
    SpecError
        The signature can't be understood.
    BuildError
        At a call: Numba can't compile the kernel, for example because it writes to an input.

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
    content = functools.cache(partial(function_content, dispatcher))

    def target_for(name: str, signature: Signature) -> str:
        digest = hashlib.sha256("\0".join((content().digest, str(signature), *versions())).encode()).hexdigest()
        target = f"{_PREFIX}.{name}:{digest}"
        make = partial(compile_entry, dispatcher, signature)
        carry = partial(_carry, dispatcher, signature)
        host_functions().add(target, name, signature, make, *content().anchors, carry=carry)
        return target

    options = check_options(
        outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random=random
    )
    called = called_function(dispatcher.py_func, target_for, lacking=LACKING)
    return host_array_function(called, signature, options)


def _carry(dispatcher: Any, signature: Signature, wanted: Demand) -> Carried:
    """Return what an exported program carries of a kernel for a signature."""
    from be_runtime.kernels.numba.cpu.host_library import build_host_kernel  # few kernels are exported

    return build_host_kernel(dispatcher, signature, PROCESS.session(), wanted.baseline)
