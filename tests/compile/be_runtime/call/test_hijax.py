"""High-level primitives made of entry points: against jnp in each transformation, and what a JAX without them says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime import CompiledModule, TransformError
from be_runtime.xla import jax_internals
from tests.support.jax_names import make_mesh, set_mesh
from tests.support.requirements import OPTIONAL

X, W, BATCH = (np.random.default_rng(1).normal(size=s).astype(np.float32) for s in ((6, 4), (6,), (3, 6, 4)))


def has_high_level_primitives() -> bool:
    try:
        jax_internals.high_level_primitive()
    except TransformError:
        return False
    return True


needs_hijax = pytest.mark.skipif(not has_high_level_primitives(), reason=f"{OPTIONAL}JAX 0.10")


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jnp.sin(function(*args)).sum()


ORDERS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "grad": lambda f: jax.grad(loss(f), (0, 1))(X, W),
    "grad of one": lambda f: jax.jit(jax.grad(loss(f), 1))(X, W),
    "jvp": lambda f: jax.jvp(f, (X, W), (X, W)),
    "jvp of one": lambda f: jax.jvp(lambda w: f(X, w), (W,), (W,)),
    "linearize": lambda f: jax.linearize(lambda x: f(x, W), X)[1](X),
    "hessian": lambda f: jax.hessian(lambda w: loss(f)(X, w))(W),
    "vmap": lambda f: jax.jit(jax.vmap(f, (0, None)))(BATCH, W),
    "grad of vmap": lambda f: jax.grad(lambda w: jax.vmap(loss(f), (0, None))(BATCH, w).sum())(W),
    "vmap of grad": lambda f: jax.vmap(jax.grad(loss(f), 1), (0, None))(BATCH, W),
    "vmap of jvp": lambda f: jax.vmap(lambda x: jax.jvp(f, (x, W), (x, W)))(BATCH),
    "grad of checkpoint of scan": lambda f: jax.grad(
        lambda w: jax.lax.scan(jax.checkpoint(lambda c, x: (c + loss(f)(x, w), None)), 0.0, BATCH)[0]
    )(W),
}


@needs_hijax
@pytest.mark.parametrize("order", ORDERS)
def test_a_high_level_primitive_has_the_rules_of_its_kernel(m: CompiledModule, order: str):
    m.wsum.deftranspose("outer", linear_in=0)
    m.wsum.deftranspose("dots", linear_in=1)
    m.dots.deftranspose("wsum", linear_in=1)
    found, expected = map(ORDERS[order], (m.wsum.as_hijax(), lambda x, w: w @ x))
    for one, other in zip(*map(jax.tree_util.tree_leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@needs_hijax
def test_it_is_one_equation_with_the_kernels_name_effects_attributes_and_outs(m: CompiledModule):
    text = str(jax.make_jaxpr(m.moments.as_hijax())(X))
    assert "moments" in text
    assert "be_kernel" not in text
    noting = m.note.with_options(has_side_effect=True).as_hijax()
    program = jax.jit(lambda x: (noting(x), x)[1])
    int(m.noted(0.0))
    program(W).block_until_ready()
    assert int(m.noted(0.0)) == 1
    assert [str(effect) for effect in jax.make_jaxpr(program)(W).effects] == ["kernel (side effect)"]
    affine = m.affine.as_hijax()
    np.testing.assert_allclose(jax.jit(lambda x: affine(x, by=2, shift=1, power=2))(X), 2 * X**2 + 1, rtol=1e-6)
    np.testing.assert_allclose(affine(X, by=3, shift=0, power=1), 3 * X, rtol=1e-6)
    with pytest.raises(be_runtime.ArgumentError, match="needs the attribute"):
        affine(X, by=3)


@needs_hijax
@pytest.mark.parametrize("kind", ["automatic", "explicit"])
def test_a_backward_rule_is_used_and_split_as_the_kernels(m: CompiledModule, kind: str):
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    mesh = make_mesh((2,), "x", kind)
    args = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((X, P("x", None)), (X[0], P()))]
    program = jax.jit(jax.grad(loss(m.scale.as_hijax()), (0, 1)))
    with set_mesh(mesh):
        found, text = program(*args), str(program.lower(*args).compile().as_text())
    assert "all-gather" not in text
    assert text.count(" all-reduce(") == 1
    for one, other in zip(found, jax.grad(loss(jnp.multiply), (0, 1))(X, X[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_jax_without_high_level_primitives_is_named(m: CompiledModule, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.hijax", None)
    monkeypatch.delattr(jax.experimental, "hijax", raising=False)
    with pytest.raises(TransformError, match="has no high-level primitives that kernels can be") as caught:
        m.wsum.as_hijax()
    assert "JAX 0.10 or newer" in str(caught.value)
