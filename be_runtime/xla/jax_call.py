"""Calls of entry points and kernels while JAX traces a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from be_runtime.xla import jax_internals
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.kernel_call.call_primitive import KernelCall, kernel_call


def bind(operands: Sequence[Any], *, results: Sequence[ArraySpec], **fields: Any) -> Sequence[Any]:
    """Call a target, while a program is traced.

    Parameters
    ----------
    operands : sequence of array
    results : sequence of ArraySpec
    **fields
        The other fields of `KernelCall`.
    """
    structs = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype.name) for each in results)
    bound: Sequence[Any] = kernel_call.bind(
        *jax_internals.vary_alike(*operands), call=KernelCall(results=structs, **fields)
    )
    return bound


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call with arrays of some types; within another program it leaves no trace."""
    return jax.jit(function, inline=True)
