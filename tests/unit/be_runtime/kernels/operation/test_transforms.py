"""An operation under JAX's transformations, in any order, against the same function without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import ad
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from be_runtime import XLACustomKernel
from tests.support.jax_names import make_mesh, set_mesh, shard_map

Function = Callable[..., Any]
X = jnp.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0], [2.0, 0.25, -2.0], [1.5, 3.0, 0.1]])
Y = jnp.array([[0.5, -1.0, 2.0], [1.0, 1.5, 0.3], [-2.0, 1.0, 0.7], [0.2, 0.4, 3.0]])


def structs(*arrays: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays)


def plain(x: Any, y: Any) -> Any:
    return x * y, x + 2 * y


def make_operation(kernel: Function) -> Function:
    """`plain` as an operation, with a rule for each input and a transpose rule: both results are linear in each."""
    product = XLACustomKernel("product")
    product.def_kernel("jax", "cpu", lambda outs: lambda x, y: [x * y])

    def times(x: Any, y: Any, outs: Any, **_: Any) -> Any:
        return product(x, y, outs=outs[0])

    def transpose(cotangents: Any, x: Any, y: Any, outs: Any, **_: Any) -> Any:
        if ad.is_undefined_primal(x):
            return times(cotangents[0], y, outs), None
        return None, times(x, cotangents[0], outs)

    product.def_transpose_rule(transpose)
    product.def_jvp_rule2(
        lambda t, x, y, **parameters: (times(t, y, **parameters),),
        lambda t, x, y, **parameters: (times(x, t, **parameters),),
    )
    operation = XLACustomKernel("pair")
    operation.def_kernel("jax", "cpu", lambda outs: kernel)
    operation.def_jvp_rule2(
        lambda t, x, y, **parameters: (times(t, y, **parameters), t),
        lambda t, x, y, **parameters: (times(x, t, **parameters), 2 * t),
    )
    return lambda x, y: operation(x, y, outs=structs(x, y))


def sequential(x: Any, y: Any) -> Any:
    """A kernel that doesn't say how it behaves under vmap."""
    return jax.pure_callback(lambda x, y: (x * y, x + 2 * y), structs(x, y), x, y)


OPERATIONS = {"mappable": make_operation(plain), "not mappable": make_operation(sequential)}


def loss(function: Function) -> Function:
    return lambda x, y: sum(jnp.sin(each).sum() for each in function(x, y))


def mapped(axes: tuple[int | None, int | None]) -> Function:
    return lambda function: jax.vmap(function, in_axes=axes)


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "nothing": lambda f: f,
    "grad": lambda f: jax.grad(loss(f), (0, 1)),
    "jvp": lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x)),
    "linearize": lambda f: lambda x, y: jax.linearize(f, x, y)[1](y, x),
    "hessian": lambda f: jax.hessian(lambda x, y: loss(f)(x[0], y[0])),
    "vmap": mapped((0, 0)),
    "vmap of the second": lambda f: lambda x, y: mapped((None, 0))(f)(x[0], y),
    "vmap along 1": mapped((1, 1)),
    "vmap of vmap": lambda f: mapped((0, 0))(mapped((0, 0))(f)),
    "vmap of vmap of one": lambda f: mapped((None, 0))(mapped((0, None))(f)),
    "vmap of grad": lambda f: mapped((0, 0))(jax.grad(loss(f), (0, 1))),
    "vmap of grad of one": lambda f: lambda x, y: mapped((0, None))(jax.grad(loss(f), (0, 1)))(x, y[0]),
    "grad of vmap": lambda f: jax.grad(loss(mapped((0, 0))(f)), (0, 1)),
    "grad of vmap of one": lambda f: lambda x, y: jax.grad(loss(mapped((0, None))(f)), (0, 1))(x, y[0]),
    "jvp of vmap": lambda f: lambda x, y: jax.jvp(mapped((None, 0))(f), (x[0], y), (2 * x[0], -y)),
    "grad of vmap of vmap": lambda f: jax.grad(loss(mapped((None, 0))(mapped((0, None))(f))), (0, 1)),
    "vmap of grad of vmap": lambda f: (
        lambda x, y: mapped((0, 0))(jax.grad(loss(mapped((0, None))(f)), (0, 1)))(jnp.stack([x, x + 1]), y[:2])
    ),
    "checkpoint": lambda f: jax.grad(loss(jax.checkpoint(f)), (0, 1)),
    "scan": lambda f: lambda x, y: jax.lax.scan(lambda carry, each: (f(carry, each)[0], carry), x[0], y),
    "cond": lambda f: lambda x, y: jax.lax.cond(x.sum() > 0, f, lambda x, y: (x, y), x, y),
}


def close(found: Any, expected: Any) -> None:
    """Whether two pytrees of the same structure hold the same numbers."""
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), found, expected)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_what_it_gives_of_the_plain_function(name: str):
    found, expected = (jax.jit(TRANSFORMS[name](each))(X, Y) for each in (OPERATIONS["mappable"], plain))
    close(found, expected)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("mappable", name) for name in ("nothing", "vmap of grad", "grad of vmap")),
        *(("not mappable", name) for name in ("vmap", "vmap of the second", "vmap of vmap of one", "vmap of grad")),
    ],
)
def test_a_transform_outside_of_jit_calls_a_kernel_that_is_not_mappable_for_each_element(kind: str, name: str):
    close(TRANSFORMS[name](OPERATIONS[kind])(X, Y), TRANSFORMS[name](plain)(X, Y))


def test_within_shard_map():
    operation = OPERATIONS["mappable"]
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("d",))
    spec = PartitionSpec("d")
    run = jax.jit(shard_map(operation, mesh=mesh, in_specs=spec, out_specs=spec))
    close(tuple(run(X, Y)), plain(X, Y))
    with pytest.raises(ValueError, match="replicat"):
        jax.jit(shard_map(operation, mesh=mesh, in_specs=spec, out_specs=PartitionSpec()))(X, Y)


@pytest.mark.parametrize("name", ["nothing", "grad", "jvp", "linearize", "vmap along 1", "vmap of grad", "checkpoint"])
def test_results_are_split_as_those_of_the_kernel(name: str):
    """By their types, where a mesh has explicit axes, so that derivatives and loops have the types of their inputs."""
    mesh = make_mesh((2,), "d", "explicit")
    x, y = (jax.device_put(each, NamedSharding(mesh, PartitionSpec("d", None))) for each in (X, Y))
    with set_mesh(mesh):
        found, expected = (jax.jit(TRANSFORMS[name](each))(x, y) for each in (OPERATIONS["mappable"], plain))
    close(found, expected)
    specs, others = ([each.sharding.spec for each in jax.tree.leaves(of)] for of in (found, expected))
    assert specs == others
    assert any("d" in spec for spec in specs)


def test_without_jit_at_all_and_abstractly():
    with jax.disable_jit():
        close(tuple(OPERATIONS["mappable"](X, Y)), plain(X, Y))
    assert jax.eval_shape(OPERATIONS["mappable"], X, Y) == structs(X, Y)


def test_an_author_s_batching_rule():
    seen = []
    operation = XLACustomKernel("batched")
    operation.def_kernel("jax", "cpu", lambda outs: lambda x: [2 * x])

    def rule(arguments: Any, axes: Any, outs: Any, **parameters: Any) -> Any:
        seen.append(axes)
        moved = jnp.moveaxis(arguments[0], axes[0], 0)
        return operation(moved, outs=structs(moved), **parameters), [0]

    operation.def_batching_rule(rule)
    run: Function = jax.vmap(lambda x: operation(x, outs=structs(x)), in_axes=1)
    close(run(X), (2 * X.T,))
    assert seen == [(1,)]
    operation.register_general_batching()
    close(run(X), (2 * X.T,))
    assert seen == [(1,)]


def test_a_jvp_rule_for_all_inputs_sees_symbolic_zeros():
    zeros = []
    operation = XLACustomKernel("scaled")
    operation.def_kernel("jax", "cpu", lambda outs, factor: lambda x, n: [factor * x * n])

    def rule(primals: Any, tangents: Any, **parameters: Any) -> Any:
        zeros.append([type(tangent) is ad.Zero for tangent in tangents])
        return operation(*primals, **parameters), [parameters["factor"] * tangents[0] * primals[1]]

    operation.def_jvp_rule(rule)
    run = jax.grad(lambda x: operation(x, 3, outs=structs(x), factor=2)[0].sum())
    close(run(X), jnp.full_like(X, 6))
    close(jax.vmap(run)(X), jnp.full_like(X, 6))
    close(jax.grad(lambda x: jax.vmap(lambda x: operation(x, 3, outs=structs(x), factor=2)[0])(x).sum())(X), X * 0 + 6)
    assert zeros == [[False, True]] * 3
