"""Functions of all operations: the registry, and rules that take an operation or a primitive of JAX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from be_runtime.jax import transforms
from be_runtime.kernels.operation import REGISTRY, Function, XLACustomKernel


def get_registry() -> dict[str, XLACustomKernel]:
    """Return all operations of this process.

    Returns
    -------
    dict of str to XLACustomKernel
        Operations by name. If several operations share a name, the value is the operation that was defined last.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> operation = be_runtime.XLACustomKernel("doc_registered")
    >>> be_runtime.get_registry()["doc_registered"] is operation
    True
    """
    return dict(REGISTRY)


def get_all_primitive_names() -> list[str]:
    """Return the names of all operations of this process.

    Returns
    -------
    list of str
        Names, sorted.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> operation = be_runtime.XLACustomKernel("doc_registered")
    >>> "doc_registered" in be_runtime.get_all_primitive_names()
    True
    """
    return sorted(get_registry())


def get_primitives_by_tags(tags: Iterable[str]) -> dict[str, XLACustomKernel]:
    """Return the operations that have all of the given tags.

    Parameters
    ----------
    tags : iterable of str
        Tags from `XLACustomKernel.def_tags`.

    Returns
    -------
    dict of str to XLACustomKernel
        Operations by name.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.XLACustomKernel("doc_tagged").def_tags("documented")
    >>> list(be_runtime.get_primitives_by_tags(["documented"]))
    ['doc_tagged']
    """
    wanted = frozenset(tags)
    return {name: operation for name, operation in get_registry().items() if wanted <= operation.tags}


def defjvp(primitive: Any, *jvp_rules: Function | None) -> None:
    """Set the JVP rule of an operation or of a JAX primitive, as one rule for each input.

    Parameters
    ----------
    primitive : XLACustomKernel or Primitive
        Operation or primitive.
    *jvp_rules : callable or None
        ``rule(tangent, *primals, **parameters)`` returns the tangents of the results for the tangent of one input. None
        stands for a derivative of zero.

    Raises
    ------
    TypeError
        The first argument is neither an operation nor a primitive.

    See Also
    --------
    - `XLACustomKernel.def_jvp_rule2`: set the rules of an operation by a method.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> cube = be_runtime.XLACustomKernel("doc_cube")
    >>> cube.def_kernel("jax", "cpu", lambda outs: lambda x: [x**3])
    >>> be_runtime.defjvp(cube, lambda tangent, x, **parameters: [3 * x**2 * tangent])
    >>> jax.grad(lambda x: cube(x, outs=jax.ShapeDtypeStruct((), jnp.float32)))(2.0).item()
    12.0
    """
    operation = _operation(primitive)
    if operation is not None:
        operation.def_jvp_rule2(*jvp_rules)
        return
    combined = transforms.jvp_by_input(primitive.bind, jvp_rules, str(primitive))

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        outs, out_tangents = combined(primals, tangents, **parameters)
        return (outs, out_tangents) if primitive.multiple_results else (outs[0], out_tangents[0])

    transforms.jvp_rules[primitive] = jvp


def general_batching_rule(
    primitive: Any, arguments: Sequence[Any], axes: Sequence[int | None], **parameters: Any
) -> tuple[Any, Any]:
    """Apply an operation or a JAX primitive to a batch.

    An operation uses its general rule. A JAX primitive is applied to one element of the batch after the other.

    Parameters
    ----------
    primitive : XLACustomKernel or Primitive
        Operation or primitive.
    arguments : sequence of array
        Inputs, with the axis of the batch.
    axes : sequence of (int or None)
        Axis of the batch in each input; None for an input that all elements share.
    **parameters
        Parameters of the primitive. For an operation, ``outs`` and the keywords of a call.

    Returns
    -------
    tuple
        Pair of the results, and the axis of the batch in each result. The axis is None if no argument has a batch axis.

    Raises
    ------
    TypeError
        The first argument is neither an operation nor a primitive.

    See Also
    --------
    - `XLACustomKernel.def_batching_rule`: set a different rule.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> negate = be_runtime.XLACustomKernel("doc_negate")
    >>> negate.def_kernel("jax", "cpu", lambda outs: lambda x: [-x])
    >>> one = jax.ShapeDtypeStruct((), jnp.float32)
    >>> (result,), axes = be_runtime.general_batching_rule(negate, [jnp.arange(3.0)], [0], outs=one)
    >>> result.tolist()
    [-0.0, -1.0, -2.0]
    """
    operation = _operation(primitive)
    if operation is not None and "call" not in parameters:  # JAX passes it to the primitive's own rule
        return operation.general_batching_rule(arguments, axes, **parameters)
    moved, level = transforms.lead(arguments, axes)
    function = partial(primitive.bind, **parameters)
    results = function(*arguments) if level is None else transforms.loop_levels(function, [level])(*moved)
    axis = None if level is None else 0
    return results, [axis] * len(results) if primitive.multiple_results else axis


def _operation(primitive: Any) -> XLACustomKernel | None:
    """Return the operation of an argument; None for a primitive of JAX."""
    if not isinstance(primitive, XLACustomKernel) and not hasattr(primitive, "bind"):
        raise TypeError(f"an XLACustomKernel or a JAX primitive is expected, not {primitive!r}")
    return primitive if isinstance(primitive, XLACustomKernel) else getattr(primitive, "be_runtime_operation", None)
