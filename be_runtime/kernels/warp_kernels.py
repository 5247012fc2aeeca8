"""`warp_kernel`: Warp's own JAX support under our names for its arguments.

What runs, compiles and batches is Warp's ``jax_kernel``: its FFI handler calls Python at every launch, and the targets
have names that Warp gives them. Ours are the arguments `outs` and `launch_dims`, and their checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from be_runtime.errors import ArgumentError
from be_runtime.xla import jax_port
from be_runtime.xla.arrays import check_structs

_ABOUT_SCALARS = "a scalar is part of the program that Warp launches: pass a number, or an array for a changing value"


def warp_kernel(
    kernel: Any,
    outs: Any,
    *,
    launch_dims: int | tuple[int, ...] | None = None,
    vmap_method: str = "sequential",
    **warp_options: Any,
) -> Callable[..., Any]:
    """Make a function of JAX arrays from a Warp kernel, by Warp's own JAX support.

    Parameters
    ----------
    kernel : warp.Kernel
        A function decorated with ``@wp.kernel``, whose last parameters are the outputs.
    outs : ShapeDtypeStruct or pytree of them
        The shape and dtype of each result. The shape ends with that of the elements where those are vectors or
        matrices.
    launch_dims : int or tuple of int, optional
        Threads along each axis; by default the shape of the first array.
    vmap_method : str
        As for ``jax.ffi.ffi_call``. ``"sequential"`` is right for every kernel. Under those that hand over a whole
        batch, Warp joins it with the first axis of each array: right for kernels that work element by element.
    **warp_options
        Further arguments of Warp's ``jax_kernel``.

    Returns
    -------
    callable
        Takes the inputs, arrays or static scalars, and gives back arrays in the structure of `outs`. It runs on GPUs
        and, by a Warp that can do so (1.19 can), on the CPU. Nothing keeps the kernel from writing its inputs: such a
        write changes what other parts of the program see.

    Raises
    ------
    ImportError
        Warp is not installed.
    TypeError
        The kernel is no Warp kernel.
    ArgumentError
        It has fewer parameters than there are results, or, when the result is called, other results than `outs` says;
        an input is not what its parameter takes.
    """
    jax_kernel = _import_jax_kernel(kernel)
    leaves, unflatten = jax_port.flatten(outs)
    check_structs(leaves)
    parameters = kernel.adj.args
    if len(parameters) < len(leaves):
        raise ArgumentError(
            f"the kernel {kernel.key} has {len(parameters)} parameters, fewer than the {len(leaves)} outs"
        )
    call = jax_kernel(
        kernel,
        num_outputs=len(leaves),
        vmap_method=vmap_method,
        launch_dims=launch_dims,
        output_dims={
            output.label: tuple(leaf.shape[: _ndim(output)])
            for output, leaf in zip(parameters[-len(leaves) :], leaves, strict=True)
        },
        **warp_options,
    )

    def checked(*inputs: Any) -> Any:
        results = call(*_as_inputs(kernel.key, parameters, inputs))
        _check_results(kernel.key, results, leaves)
        return unflatten(results)

    return checked


def _import_jax_kernel(kernel: object) -> Callable[..., Any]:
    """Warp's function, once it is clear that there is one for such an object."""
    try:
        import warp
    except ImportError as error:
        raise ImportError(
            f"warp_kernel needs Warp, which can't be imported: {error}\nhint: pip install 'brainevent-toolchain[warp]'"
        ) from error
    if not isinstance(kernel, warp.Kernel):
        raise TypeError(f"kernel must be a function decorated with @warp.kernel, not {kernel!r}")
    if not hasattr(warp, "jax_kernel"):
        raise ImportError(
            f"warp_kernel needs a newer Warp than {warp.__version__}\nhint: pip install 'brainevent-toolchain[warp]'"
        )
    function: Callable[..., Any] = warp.jax_kernel
    return function


def _ndim(parameter: Any) -> int:
    """The dimensions of the array that a parameter takes; 0 where it takes a scalar."""
    return int(getattr(parameter.type, "ndim", 0))


def _as_inputs(name: str, parameters: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Arrays where the kernel takes arrays, and its scalars as they are; Warp counts them."""
    known = parameters[: len(inputs)]
    taken = [_as_input(name, parameter, value) for parameter, value in zip(known, inputs[: len(known)], strict=True)]
    return [*taken, *inputs[len(known) :]]


def _as_input(name: str, parameter: Any, value: Any) -> Any:
    is_array = _ndim(parameter) > 0
    try:
        if is_array:
            return jax_port.as_array(value)
        if not isinstance(value, str):
            float(value)
            return value
    except (TypeError, ValueError):
        pass
    kind, hint = ("an array", "pass a JAX or NumPy array") if is_array else ("a static number", _ABOUT_SCALARS)
    raise ArgumentError(f"the kernel {name}: {parameter.label} is {value!r}, which is not {kind}", hints=(hint,))


def _check_results(name: str, results: Sequence[Any], leaves: Sequence[Any]) -> None:
    for index, (result, leaf) in enumerate(zip(results, leaves, strict=True)):
        if result.shape != tuple(leaf.shape) or result.dtype != leaf.dtype:
            raise ArgumentError(
                f"the kernel {name} gives {result.dtype}{list(result.shape)} as output {index}, "
                f"but outs says {leaf.dtype}{list(leaf.shape)}"
            )
