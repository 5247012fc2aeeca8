"""Rules as functions: of operations, of their primitives, and of primitives that are JAX's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from be_runtime import XLACustomKernel, defjvp, general_batching_rule

X = jnp.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
Y = jnp.array([2.0, 3.0, 5.0])
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)


def product() -> XLACustomKernel:
    operation = XLACustomKernel("product")
    operation.def_kernel("jax", "cpu", lambda outs, by=1: lambda x, y: [by * x * y])
    return operation


def plain_primitive(*, multiple: bool) -> Any:
    """A primitive as people make them: the product, alone or with the sum."""
    primitive: Any = Primitive("plain")
    primitive.multiple_results = multiple

    def compute(x: Any, y: Any) -> Any:
        return [x * y, x + y] if multiple else x * y

    primitive.def_impl(compute)
    primitive.def_abstract_eval(lambda x, y: [x, x] if multiple else x)
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=multiple))
    return primitive


@pytest.fixture(params=[lambda operation: operation, lambda operation: operation.primitive])
def of(request: pytest.FixtureRequest) -> Any:
    """An operation itself, or its primitive."""
    return request.param


def test_a_rule_for_each_input_of_an_operation(of: Any):
    operation = product()
    defjvp(of(operation), lambda t, x, y, **_: [t * y], lambda t, x, y, **_: [t * x])
    primal, tangent = jax.jvp(lambda x, y: operation(x, y, outs=OUT), (X[0], Y), (X[1], 2 * Y))
    np.testing.assert_allclose(primal, X[0] * Y)
    np.testing.assert_allclose(tangent, X[1] * Y + 2 * Y * X[0])


def test_the_general_rule_within_an_author_s_rule(of: Any):
    operation, seen = product(), []

    def rule(arguments: Any, axes: Any, **parameters: Any) -> Any:
        seen.append(sorted(parameters))
        return general_batching_rule(of(operation), arguments, axes, **parameters)

    operation.def_batching_rule(rule)
    run = jax.jit(jax.vmap(lambda x, y: operation(x, y, outs=OUT, by=3), in_axes=(1, None)))
    np.testing.assert_allclose(run(X.T, Y), 3 * X * Y)
    assert seen == [["backend", "by", "outs"]]
    results, axes = general_batching_rule(of(operation), (X[0], Y), (None, None), outs=OUT)
    np.testing.assert_allclose(results[0], X[0] * Y)
    assert list(axes) == [None]
    batching.primitive_batchers[operation.primitive] = partial(general_batching_rule, operation.primitive)
    np.testing.assert_allclose(jax.vmap(lambda x: operation(x, Y, outs=OUT))(X), X * Y)


@pytest.mark.parametrize("multiple", [False, True])
def test_rules_of_primitives_that_are_jax_s_own(multiple: bool):
    def first(results: Any) -> Any:
        return results[0] if multiple else results

    primitive = plain_primitive(multiple=multiple)
    defjvp(primitive, lambda t, x, y: [t * y, t] if multiple else t * y, None)
    tangents = jax.jvp(jax.jit(primitive.bind), (X[0], Y), (X[1], Y))[1]
    np.testing.assert_allclose(first(tangents), X[1] * Y)
    batching.primitive_batchers[primitive] = partial(general_batching_rule, primitive)
    np.testing.assert_allclose(first(jax.vmap(primitive.bind, in_axes=(1, None))(X.T, Y)), X * Y)
    results, axes = general_batching_rule(primitive, (X[0], Y), (None, None))
    np.testing.assert_allclose(first(results), X[0] * Y)
    assert axes == ([None, None] if multiple else None)


@pytest.mark.parametrize("call", [lambda: defjvp(3), lambda: general_batching_rule("add", (X,), (0,))])
def test_what_is_no_primitive(call: Any):
    with pytest.raises(TypeError, match="an XLACustomKernel or a JAX primitive is expected, not"):
        call()
