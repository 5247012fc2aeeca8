"""The calls of kernels in a traced function, wherever JAX keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from be_runtime.jax.arrays import as_jax


def kernel_calls(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The equations that call a kernel; JAX 0.11 keeps those of an inlined function in an equation of their own."""
    return list(_in(jax.make_jaxpr(function)(*arrays).jaxpr))


def _in(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        if equation.primitive.name == "be_kernel":
            yield equation
        for inner in equation.params.values():
            if hasattr(inner, "jaxpr"):
                yield from _in(inner.jaxpr)


def attributes(equation: Any) -> dict[str, Any]:
    """The attributes of a call, as XLA gets them."""
    return {name: as_jax(value) for name, value in equation.params["call"].attributes}
