"""Derivatives of calls: of kernels that are linear, by themselves and by the transposes that an author gives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.interpreters import ad

from be_runtime.errors import TransformError
from be_runtime.xla import jax_vjp
from be_runtime.xla.jax_primitive import zero_tangent
from be_runtime.xla.kernel_call.call_primitive import KernelCall, kernel_call


def differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, call: KernelCall) -> tuple[Any, Any]:
    """Compute the results, and their tangents by the same kernel where it is linear."""
    moving = [index for index, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    lacking = [index for index in moving if index not in dict(call.transposes)]
    if lacking:
        is_linear = f" with respect to argument {lacking[0]}" if call.transposes else ""
        module, _, name = call.label.rpartition(".")
        rules = (
            f'give it one: {call.label}.defvjp(forward, backward), with kernels by name, such as "{name}_bwd"',
            "or, if it is linear in an argument, deftranspose; or stop it by jax.lax.stop_gradient",
        )
        raise TransformError(
            f"{call.label} has no derivative{is_linear}",
            hints=rules if module else ("give it one by jax.custom_vjp", "or stop it by jax.lax.stop_gradient"),
        )
    results = kernel_call.bind(*primals, call=call)
    parts = [kernel_call.bind(*primals[:i], tangents[i], *primals[i + 1 :], call=call) for i in moving]
    summed = [functools.reduce(ad.add_tangents, each) for each in zip(*parts, strict=True)]
    exact = [not jnp.issubdtype(each.dtype, jnp.inexact) for each in results]
    pairs = zip(results, summed, exact, strict=True)
    return results, [zero_tangent(result) if is_exact else tangent for result, tangent, is_exact in pairs]


def transpose(cotangents: Sequence[Any], *operands: Any, call: KernelCall) -> list[Any]:
    """Map the cotangents of the results to that of the input in which the kernel is linear."""
    (index,) = (i for i, operand in enumerate(operands) if ad.is_undefined_primal(operand))
    given = [ad.instantiate_zeros(each) for each in cotangents[: len(call.split.results)]]
    found = jax_vjp.transposed(dict(call.transposes)[index], call.split, index, operands, given)
    return [found if i == index else None for i in range(len(operands))]
