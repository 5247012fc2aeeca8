"""A batch made by ``vmap`` that is split over devices stays split, also where the kernel is called for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from be_runtime import CompiledModule, GatherWarning, TransformError

X = np.arange(24, dtype=np.float32).reshape(4, 6)
W = np.array([1, 0], np.float32)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("b",))


def split(array: Any, *spec: Any) -> Any:
    return jax.device_put(array, NamedSharding(MESH, PartitionSpec(*spec)))


def calls_of(m: CompiledModule, function: Callable[..., Any], *arrays: Any) -> tuple[Any, int]:
    jax.block_until_ready(m.noted(np.float32(0)))
    results = jax.block_until_ready(function(*arrays))
    return results, int(m.noted(np.float32(0)))


@pytest.mark.parametrize(
    ("wrap", "w_axis", "has_side_effect"), [(jax.jit, None, False), (jax.jit, 0, True), (lambda f: f, 0, False)]
)
def test_each_device_computes_its_own_elements(m: CompiledModule, wrap: Any, w_axis: Any, has_side_effect: bool):
    w = W if w_axis is None else split(np.tile(W, (4, 1)), "b")
    function = wrap(jax.vmap(m.adds.with_options(has_side_effect=has_side_effect), in_axes=(0, w_axis)))
    (y, sizes), calls = calls_of(m, function, split(X, "b"), w)
    assert (calls, y.sharding.spec) == (4, PartitionSpec("b"))
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(sizes, [[6, 2]] * 4)
    (y, _), calls = calls_of(m, function, jnp.asarray(X), np.asarray(w))
    assert calls == 4, "on one device nothing changes"
    np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize("spec", [("b",), (None, "b")])
def test_batches_of_batches_too(m: CompiledModule, spec: tuple[Any, ...]):
    twice = np.stack([X, X + 100])
    w = np.tile(W, (4, 1)) * np.arange(4, dtype=np.float32)[:, None]
    function = jax.jit(jax.vmap(jax.vmap(lambda x, w: m.adds(x, w)[0]), in_axes=(0, None)))
    y, calls = calls_of(m, function, split(twice, *spec), w)
    assert (calls, y.sharding.spec) == (8, PartitionSpec(*spec))
    np.testing.assert_array_equal(y, twice + np.arange(4)[:, None])


def test_a_batch_that_devices_do_not_divide_is_gathered_and_that_is_told(m: CompiledModule):
    def summed(adds: Any) -> Any:
        def function(x: Any) -> Any:
            x = jax.lax.with_sharding_constraint(x * 1, NamedSharding(MESH, PartitionSpec("b")))
            return jax.vmap(lambda x: adds(x, W)[0])(x).sum()

        return jax.jit(function)(np.ones((3, 6), np.float32))

    with pytest.warns(GatherWarning, match="2 devices do not divide its 3 elements"):
        assert float(summed(m.adds)) == 36
    with pytest.raises((TransformError, jax.errors.JaxRuntimeError), match="2 devices do not divide its 3 elements"):
        jax.block_until_ready(summed(m.adds.with_options(on_gather="error")))
