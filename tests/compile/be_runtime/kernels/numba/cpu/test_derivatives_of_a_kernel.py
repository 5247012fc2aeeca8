"""Rules for derivatives of functions that are no entry points of a module: kernels without host code."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest

from be_runtime import ArgumentError, TransformError, numba_kernel


@numba.njit
def square(x, y, out):
    for i in range(out.size):
        out[i] = x[i] * x[i] * y[i]


@numba.njit
def square_back(x, y, g, dx, dy):
    for i in range(g.size):
        dx[i] = 2 * x[i] * y[i] * g[i]
        dy[i] = x[i] * x[i] * g[i]


@numba.njit
def reverse(x, out):
    for i in range(out.size):
        out[i] = x[x.size - 1 - i]


X, Y = jnp.arange(3.0), jnp.array([2.0, 3.0, 5.0])


def gradients(function: Any) -> Any:
    return jax.jit(jax.grad(lambda x, y: function(x, y).sum(), argnums=(0, 1)))(X, Y)


def test_a_python_rule():
    function = numba_kernel(square, signature="arg[n] arg[n] ret[n]")
    function.defvjp(None, lambda inputs, g: (2 * inputs[0] * inputs[1] * g, inputs[0] ** 2 * g))
    dx, dy = gradients(function)
    np.testing.assert_array_equal(dx, [0, 6, 20])
    np.testing.assert_array_equal(dy, [0, 1, 4])


def test_a_kernel_is_the_rule():
    function = numba_kernel(square, signature="arg[n] arg[n] ret[n]")
    function.defvjp(None, numba_kernel(square_back, signature="arg[n] arg[n] arg[n] ret[n] ret[n]"))
    dx, dy = gradients(function)
    np.testing.assert_array_equal(dx, [0, 6, 20])
    np.testing.assert_array_equal(dy, [0, 1, 4])
    batched = jax.vmap(jax.grad(lambda x: function(x, Y).sum()))(jnp.stack([X, Y]))
    np.testing.assert_array_equal(batched, [2 * X * Y, 2 * Y * Y])


def test_a_forward_rule_keeps_what_the_backward_rule_needs():
    function = numba_kernel(square, outs=lambda x, _y: x)
    function.defvjp(lambda x, y: (x * x * y, (x + y, 2)), lambda kept, g: (kept[0] * kept[1] * g, None))
    dx, dy = gradients(function)
    np.testing.assert_array_equal(dx, 2 * (X + Y))
    np.testing.assert_array_equal(dy, [0, 0, 0])


def test_a_linear_kernel():
    function = numba_kernel(reverse, signature="arg[n] ret[n]")
    function.deftranspose(function)
    np.testing.assert_array_equal(jax.jvp(function, (X,), (Y,))[1], Y[::-1])
    np.testing.assert_array_equal(jax.vjp(function, X)[1](Y)[0], Y[::-1])
    with pytest.raises(ArgumentError, match="linear_in is 1, but reverse has inputs 0 to 0"):
        function.deftranspose(function, linear_in=1)


def test_without_a_rule_the_error_says_how_to_give_one():
    function = numba_kernel(reverse, signature="arg[n] ret[n]")
    with pytest.raises(TransformError, match=r"pass two functions: reverse\.defvjp\(forward, backward\)\n"):
        jax.grad(lambda x: function(x).sum())(X)
    with pytest.raises(ArgumentError, match="pass the function itself"):
        function.defvjp(None, "reverse_back")
    function.defvjp(None, lambda _inputs, g: (g[::-1],))  # a rule that comes later holds for later calls
    np.testing.assert_array_equal(jax.grad(lambda x: (function(x) * Y).sum())(X), Y[::-1])
