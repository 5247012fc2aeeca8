"""`warp_kernel`: Warp's own JAX support with this package's argument names.

Warp's ``jax_kernel`` compiles, batches and runs the kernel: its FFI handler calls Python at every launch, and Warp
names the targets. This module adds and checks the arguments `outs` and `launch_dims`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.jax import port
from be_runtime.jax.arrays import check_known, check_structs

_ABOUT_SCALARS = "a scalar is part of the program that Warp launches: pass a number, or an array for a changing value"


@public
def warp_kernel(
    kernel: Any,
    outs: Any,
    *,
    launch_dims: int | tuple[int, ...] | None = None,
    vmap_method: str = "sequential",
    **warp_options: Any,
) -> Callable[..., Any]:
    """Make a Warp kernel callable from JAX. Warp's own ``jax_kernel`` calls the kernel.

    Parameters
    ----------
    kernel : warp.Kernel
        Function decorated with ``@wp.kernel``. The last parameters of the kernel are the results.
    outs : ShapeDtypeStruct or pytree of them
        Shape and dtype of each result. If the elements are vectors or matrices, append the shape of an element to
        the shape of the array.
    launch_dims : int or tuple of int, optional
        Number of threads along each axis. The default is the shape of the first array.
    vmap_method : str, default "sequential"
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. ``"sequential"`` is correct for all kernels. With
        ``"broadcast_all"`` or ``"expand_dims"``, Warp merges the batch with the first axis of each array, and the
        results are correct only for elementwise kernels.
    **warp_options
        Further arguments of Warp's ``jax_kernel``.

    Returns
    -------
    callable
        Function that takes the inputs, which are arrays or static scalars, and returns arrays in the structure of
        `outs`. The function runs on GPUs and on the CPU. The kernel must not write to its inputs: nothing prevents such
        a write, which changes values in other parts of the program.

    Raises
    ------
    ImportError
        Warp is not installed.
    TypeError
        `kernel` is not decorated with ``@wp.kernel``.
    ArgumentError
        The kernel has fewer parameters than `outs` has results. At a call: the results differ from `outs`, or an input
        does not fit its parameter.

    See Also
    --------
    - :doc:`/custom-kernels`: a Warp kernel as one backend of several.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import warp as wp  # doctest: +SKIP
    >>> @wp.kernel  # doctest: +SKIP
    ... def double(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    ...     i = wp.tid()
    ...     y[i] = 2.0 * x[i]
    >>> f = be_runtime.warp_kernel(double, jax.ShapeDtypeStruct((3,), jnp.float32))  # doctest: +SKIP
    >>> f(jnp.arange(3.0)).tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0]
    """
    warp = _import_warp("warp_kernel")
    if not isinstance(kernel, warp.Kernel):
        raise TypeError(f"kernel must be a function decorated with @warp.kernel, not {kernel!r}")
    if not hasattr(warp, "jax_kernel"):
        raise ImportError(
            f"warp_kernel needs a newer Warp than {warp.__version__}\nhint: pip install 'brainevent-toolchain[warp]'"
        )
    leaves, unflatten = port.flatten(outs)
    check_structs(leaves)
    check_known("outs", leaves)
    parameters = kernel.adj.args
    if len(parameters) < len(leaves):
        raise ArgumentError(
            f"the kernel {kernel.key} has {len(parameters)} parameters, fewer than the {len(leaves)} outs"
        )
    outputs = zip(parameters[-len(leaves) :], leaves, strict=True)
    dims = {output.label: tuple(leaf.shape[: _ndim(output)]) for output, leaf in outputs}
    count = len(leaves)
    call = warp.jax_kernel(
        kernel, num_outputs=count, vmap_method=vmap_method, launch_dims=launch_dims, output_dims=dims, **warp_options
    )

    def checked(*inputs: Any) -> Any:
        known, more = inputs[: len(parameters)], inputs[len(parameters) :]  # Warp checks their number
        pairs = zip(parameters, known, strict=False)
        results = call(*(_as_input(kernel.key, parameter, value) for parameter, value in pairs), *more)
        for index, (result, leaf) in enumerate(zip(results, leaves, strict=True)):
            if result.shape != tuple(leaf.shape) or result.dtype != leaf.dtype:
                raise ArgumentError(
                    f"the kernel {kernel.key} gives {result.dtype}{list(result.shape)} as output {index}, "
                    f"but outs declares {leaf.dtype}{list(leaf.shape)}"
                )
        return unflatten(results)

    return checked


def jaxtype_to_warptype(dtype: Any) -> Any:
    """Return the Warp scalar type for a dtype.

    Parameters
    ----------
    dtype : dtype
        Dtype in any form that NumPy accepts, such as ``jnp.float32`` or ``"int8"``.

    Returns
    -------
    type
        Warp scalar type, such as ``warp.float32``.

    Raises
    ------
    ImportError
        Warp is not installed.
    ArgumentError
        The argument is not a dtype, or Warp does not support the dtype.

    See Also
    --------
    - :doc:`/custom-kernels`: a Warp kernel as one backend of several.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.jaxtype_to_warptype("float32")  # doctest: +SKIP
    <class 'warp.types.float32'>
    """
    import numpy as np

    warp = _import_warp("jaxtype_to_warptype")
    try:
        name = np.dtype(dtype).name
    except TypeError as error:
        raise ArgumentError(f"{dtype!r} is not a dtype: {error}") from error
    if name not in BY_NAME or not hasattr(warp, name):
        raise ArgumentError(f"Warp has no scalar type for {name}")
    return getattr(warp, name)


def jaxinfo_to_warpinfo(jax_info: Any) -> Any:
    """Return the annotation of a Warp kernel's array parameter.

    Parameters
    ----------
    jax_info : ShapeDtypeStruct
        Shape and dtype of an array with at least one axis.

    Returns
    -------
    warp.array
        Annotation with the dtype and the number of axes.

    Raises
    ------
    ImportError
        Warp is not installed.
    ArgumentError
        The shape has no axes, or Warp does not support the dtype.

    See Also
    --------
    - :doc:`/custom-kernels`: a Warp kernel as one backend of several.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> annotation = be_runtime.jaxinfo_to_warpinfo(jax.ShapeDtypeStruct((3, 4), "float32"))  # doctest: +SKIP
    >>> annotation.ndim  # doctest: +SKIP
    2
    """
    if not jax_info.shape:
        raise ArgumentError(f"{jax_info} has no axes, and a Warp array has one at least", hints=("use the shape (1,)",))
    dtype = jaxtype_to_warptype(jax_info.dtype)
    return _import_warp("jaxinfo_to_warpinfo").array(dtype=dtype, ndim=len(jax_info.shape))


def _import_warp(function: str) -> Any:
    try:
        import warp
    except ImportError as error:
        raise ImportError(
            f"{function} needs Warp, which can't be imported: {error}\nhint: pip install 'brainevent-toolchain[warp]'"
        ) from error
    return warp


def _ndim(parameter: Any) -> int:
    """Return the number of dimensions of the array that a parameter takes; 0 for a scalar."""
    return int(getattr(parameter.type, "ndim", 0))


def _as_input(name: str, parameter: Any, value: Any) -> Any:
    """Convert the input for an array to an array; a scalar stays as it is."""
    is_array = _ndim(parameter) > 0
    try:
        if is_array:
            return port.as_array(value)
        if not isinstance(value, str):
            float(value)
            return value
    except (TypeError, ValueError):
        pass
    kind, hint = ("an array", "pass a JAX or NumPy array") if is_array else ("a static number", _ABOUT_SCALARS)
    raise ArgumentError(f"the kernel {name}: {parameter.label} is {value!r}, which is not {kind}", hints=(hint,))
