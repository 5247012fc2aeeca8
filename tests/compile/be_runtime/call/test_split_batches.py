"""A batch made by ``vmap`` that is split over devices stays split, also where the kernel is called for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import be_runtime
from be_runtime import CompiledModule, GatherWarning, TransformError

SOURCE = """
#include "brainevent/common.h"
#include <atomic>
static std::atomic<int> calls{0};

// @BE adds arg[n]:float32 arg[k]:float32 ret[n]:float32 ret[2]:int32 scratch[4*n]
void adds(const BE::Tensor x, const BE::Tensor w, BE::Tensor y, BE::Tensor sizes, BE::Workspace scratch) {
  ++calls;
  float* copy = scratch.data_as<float>();
  for (int64_t i = 0; i < x.numel(); ++i) copy[i] = x.at<float>(i) + w.at<float>(0);
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = copy[i];
  sizes.at<int32_t>(0) = static_cast<int32_t>(x.numel());
  sizes.at<int32_t>(1) = static_cast<int32_t>(w.numel());
}
// @BE count arg[] ret[]:int32
void count(const BE::Tensor, BE::Tensor y) { *y.data_ptr<int32_t>() = calls.exchange(0); }
"""
X = np.arange(24, dtype=np.float32).reshape(4, 6)
W = np.array([1, 0], np.float32)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("b",))


@pytest.fixture(scope="module")
def module() -> CompiledModule:
    return be_runtime.load_cpp_inline("split_batches", SOURCE)


def split(array: Any, *spec: Any) -> Any:
    return jax.device_put(array, NamedSharding(MESH, PartitionSpec(*spec)))


def calls_of(module: CompiledModule, function: Callable[..., Any], *arrays: Any) -> tuple[Any, int]:
    jax.block_until_ready(module.count(np.float32(0)))
    results = jax.block_until_ready(function(*arrays))
    return results, int(module.count(np.float32(0)))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("w_axis", [None, 0])
@pytest.mark.parametrize("has_side_effect", [False, True])
def test_each_device_computes_its_own_elements(
    module: CompiledModule, wrap: Any, w_axis: int | None, has_side_effect: bool
):
    w = W if w_axis is None else split(np.tile(W, (4, 1)), "b")
    adds = module.adds.with_options(has_side_effect=has_side_effect)
    function = wrap(jax.vmap(adds, in_axes=(0, w_axis)))
    (y, sizes), calls = calls_of(module, function, split(X, "b"), w)
    assert calls == 4
    assert y.sharding.spec == PartitionSpec("b")
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(sizes, [[6, 2]] * 4)


@pytest.mark.parametrize("spec", [("b",), (None, "b")])
def test_batches_of_batches_too(module: CompiledModule, spec: tuple[Any, ...]):
    twice = np.stack([X, X + 100])
    w = np.tile(W, (4, 1)) * np.arange(4, dtype=np.float32)[:, None]
    function = jax.jit(jax.vmap(jax.vmap(lambda x, w: module.adds(x, w)[0]), in_axes=(0, None)))
    y, calls = calls_of(module, function, split(twice, *spec), w)
    assert calls == 8
    assert y.sharding.spec == PartitionSpec(*spec)
    np.testing.assert_array_equal(y, twice + np.arange(4)[:, None])


def test_a_batch_that_devices_do_not_divide_is_gathered_and_that_is_told(module: CompiledModule):
    def summed(adds: Any) -> Any:
        def function(x: Any) -> Any:
            x = jax.lax.with_sharding_constraint(x * 1, NamedSharding(MESH, PartitionSpec("b")))
            return jax.vmap(lambda x: adds(x, W)[0])(x[:3] if x.shape[0] > 3 else x).sum()

        return jax.jit(function)

    uneven = np.ones((3, 6), np.float32)
    with pytest.warns(GatherWarning, match="2 devices do not divide its 3 elements"):
        assert float(summed(module.adds)(uneven)) == 36
    with pytest.raises((TransformError, jax.errors.JaxRuntimeError), match="2 devices do not divide its 3 elements"):
        jax.block_until_ready(summed(module.adds.with_options(on_gather="error"))(uneven))


def test_on_one_device_nothing_changes(module: CompiledModule):
    y, calls = calls_of(module, jax.jit(jax.vmap(lambda x: module.adds(x, W)[0])), jnp.asarray(X))
    assert calls == 4
    np.testing.assert_array_equal(y, X + 1)
