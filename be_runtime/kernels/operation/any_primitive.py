"""Rules as functions of an operation or of any JAX primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from be_runtime.kernels.operation import rules
from be_runtime.kernels.operation.operation import XLACustomKernel
from be_runtime.xla import jax_primitive


def defjvp(primitive: Any, *jvp_rules: Callable[..., Any] | None) -> None:
    """Use one JVP rule for each input of an operation or a primitive, as `XLACustomKernel.def_jvp_rule2` does."""
    operation = _operation(primitive)
    if operation is not None:
        operation.def_jvp_rule2(*jvp_rules)
        return
    combined = rules.jvp_by_input(primitive.bind, jvp_rules, str(primitive))

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        outs, out_tangents = combined(primals, tangents, **parameters)
        return (outs, out_tangents) if primitive.multiple_results else (outs[0], out_tangents[0])

    jax_primitive.set_jvp(primitive, jvp)


def general_batching_rule(
    primitive: Any, arguments: Sequence[Any], axes: Sequence[int | None], **parameters: Any
) -> tuple[Any, Any]:
    """Compute a batch: an operation by its general rule, a primitive of JAX's for one element after the other.

    Returns
    -------
    tuple
        Results, and the axis of the batch in each; None if no argument has one.
    """
    operation = _operation(primitive)
    if operation is not None and "call" not in parameters:  # which JAX passes where this is the primitive's own rule
        return operation.general_batching_rule(arguments, axes, **parameters)
    moved, level = rules.lead(arguments, axes)
    function = partial(primitive.bind, **parameters)
    results = function(*arguments) if level is None else jax_primitive.loop_levels(function, [level])(*moved)
    axis = None if level is None else 0
    return results, [axis] * len(results) if primitive.multiple_results else axis


def _operation(primitive: Any) -> XLACustomKernel | None:
    """Return the operation that is meant; None for a primitive of JAX's."""
    if not isinstance(primitive, XLACustomKernel) and not hasattr(primitive, "bind"):
        raise TypeError(f"an XLACustomKernel or a JAX primitive is expected, not {primitive!r}")
    return primitive if isinstance(primitive, XLACustomKernel) else getattr(primitive, "be_runtime_operation", None)
