"""Calls inside JAX's transformations: jit, vmap, scan, loops, aliases, derivatives, several devices and threads."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from tests.support.jax_names import shard_map

SOURCE = r"""
#include "brainevent/common.h"
using BE::Tensor;
static const float* in(const Tensor& x) { return x.data_ptr<float>(); }
template <class Value>
static void fill(Tensor& y, Value value) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = value(i);
}
// Rows of the last dimension, so that a batch of rows is rows again; the dimensions before it broadcast.
// @BE add_rows arg arg ret attr.scale:float32
void add_rows(const Tensor x, const Tensor y, Tensor z, float scale) {
  BE_CHECK(x.numel() == z.numel() || y.numel() == z.numel()) << "nothing to broadcast to";
  fill(z, [&](int64_t i) { return in(x)[i % x.numel()] + scale * in(y)[i % y.numel()]; });
}
// @BE shape_of_first
void shape_of_first(const Tensor x, Tensor y, Tensor z) {
  fill(y, [&](int64_t i) { return in(x)[i]; });
  fill(z, [&](int64_t) { return x.ndim() * 100 + x.size(0); });
}
// @BE increment arg ret
void increment(const Tensor x, Tensor y) { fill(y, [&](int64_t i) { return in(x)[i] + 1; }); }
// @BE plus_sum arg arg ret
void plus_sum(const Tensor x, const Tensor sum, Tensor y) {
  BE_CHECK(x.size(0) == 2) << "one device's part has two rows, not " << x.size(0);
  fill(y, [&](int64_t i) { return in(x)[i] + in(sum)[0]; });
}
// Adds to what is in the result already, so that it is right only where the result is the argument's memory.
// @BE accumulate arg arg ret
void accumulate(const Tensor total, const Tensor x, Tensor y) {
  BE_CHECK(total.data_ptr() == y.data_ptr()) << "not in place";
  fill(y, [&](int64_t i) { return in(y)[i] + in(x)[i]; });
}
"""
METHODS = [
    method
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")
    if method in inspect.getsource(inspect.getmodule(jax.ffi.ffi_call) or jax.ffi)
]
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([[1, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400]], np.float32)


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("transforms", SOURCE)


def call(function: str, x: Any, *more: Any, method: str | None = None, **attributes: Any) -> Any:
    """Call a function whose result is like its first argument."""
    caller: Any = jax.ffi.ffi_call(f"transforms.{function}", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method=method)
    return caller(x, *more, **attributes)


def increment(x: Any) -> Any:
    return call("increment", x)


def add_rows(x: Any, y: Any, method: str | None = None) -> Any:
    return call("add_rows", x, y, method=method, scale=np.float32(2))


@pytest.mark.parametrize("method", METHODS)
def test_vmap_by_each_method(method: str):
    mapped: Any = jax.vmap(lambda x, y: add_rows(x, y, method))
    for run in (mapped, jax.jit(mapped)):
        np.testing.assert_array_equal(run(X, Y), X + 2 * Y)
    x, y = np.stack([X, X + 1]), np.stack([Y, -Y])
    np.testing.assert_array_equal(jax.jit(jax.vmap(mapped))(x, y), x + 2 * y)
    if method != "legacy_vectorized":
        over_one = jax.jit(jax.vmap(lambda x, y: add_rows(x, y, method), in_axes=(0, None)))
        np.testing.assert_array_equal(over_one(X, Y[1]), X + 2 * Y[1])


def test_what_a_mapped_kernel_sees_and_that_it_needs_a_method():
    """One row at a time, or the whole batch with a dimension before."""
    outs = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((2,), np.float32))
    assert {"sequential", "expand_dims", "broadcast_all"} <= set(METHODS)
    for method, seen in (("sequential", 103), ("expand_dims", 204), ("broadcast_all", 204)):
        copy, shapes = jax.vmap(jax.ffi.ffi_call("transforms.shape_of_first", outs, vmap_method=method))(X)
        np.testing.assert_array_equal(copy, X)
        np.testing.assert_array_equal(shapes, np.full((4, 2), seen))
    with pytest.raises(RuntimeError, match="vmap") as caught:
        jax.vmap(increment)(X)
    assert caught.type.__module__ == "builtins"
    assert caught.type is not RuntimeError


def test_scan_loops_and_branches():
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = add_rows(increment(carry), x)
        return carry, carry.sum()

    last, sums = jax.jit(lambda start, xs: jax.lax.scan(step, start, xs))(jnp.zeros(3), Y)
    expected = np.cumsum(1 + 2 * Y, axis=0)
    np.testing.assert_array_equal(last, expected[-1])
    np.testing.assert_array_equal(sums, expected.sum(axis=1))
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, value: increment(value), x))
    np.testing.assert_array_equal(run(X), X + 1000)
    run = jax.jit(lambda x: jax.lax.while_loop(lambda value: value.sum() < 100, increment, x))
    np.testing.assert_array_equal(run(X), X + 3)
    choose = jax.jit(lambda flag, x: jax.lax.cond(flag, increment, lambda value: value, x))
    np.testing.assert_array_equal(choose(True, X), X + 1)
    np.testing.assert_array_equal(choose(False, X), X)


def test_input_output_aliases_give_the_kernel_the_same_memory():
    out = jax.ShapeDtypeStruct((3,), np.float32)
    accumulate: Any = jax.ffi.ffi_call("transforms.accumulate", out, input_output_aliases={0: 0})
    total = jnp.array([1.0, 2.0, 3.0])
    result = jax.jit(lambda start: jax.lax.fori_loop(0, 10, lambda _, value: accumulate(value, Y[0]), start))(total)
    np.testing.assert_array_equal(result, [11, 102, 1003])
    np.testing.assert_array_equal(jax.jit(accumulate)(total, Y[0]), [2, 12, 103])
    np.testing.assert_array_equal(total, [1, 2, 3], err_msg="an argument that lives on is copied, not overwritten")
    np.testing.assert_array_equal(jax.jit(accumulate, donate_argnums=0)(total, Y[0]), [2, 12, 103])


def test_a_gradient_without_a_rule_is_jax_s_own_error():
    with pytest.raises(ValueError, match=r"custom_vjp|differentiat"):
        jax.grad(lambda x: increment(x).sum())(jnp.ones(3))


def test_ahead_of_time():
    compiled = jax.jit(increment).lower(jax.ShapeDtypeStruct((3,), np.float32)).compile()
    np.testing.assert_array_equal(compiled(jnp.ones(3)), [2, 2, 2])
    assert jax.eval_shape(increment, jnp.ones(3)).shape == (3,)


def test_two_devices():
    devices = jax.devices("cpu")[:2]
    assert len(devices) == 2, "the tests' conftest asks for two"
    mesh = Mesh(np.array(devices), ("d",))
    mapped = jax.jit(
        shard_map(
            lambda x: call("plus_sum", x, jax.lax.psum(x.sum(), "d")), mesh=mesh, in_specs=P("d"), out_specs=P("d")
        )
    )
    result = mapped(jax.device_put(X, NamedSharding(mesh, P("d"))))
    np.testing.assert_array_equal(result, X + X.sum())
    assert {shard.device for shard in result.addressable_shards} == set(devices)
    for device in devices:
        np.testing.assert_array_equal(jax.jit(increment)(jax.device_put(X, device)), X + 1)


def test_many_threads():
    run = jax.jit(lambda x: increment(increment(x)))

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random((50, 20), np.float32)
        return all(np.array_equal(run(x), (x + np.float32(1)) + np.float32(1)) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_many_threads_load_the_same_module():
    source = SOURCE.replace("+ 1;", "+ 5;")

    def work(_: int) -> tuple[str, list[float]]:
        module = be_runtime.load_cpp_inline("loaded_by_threads", source)
        out = jax.ShapeDtypeStruct((3,), np.float32)
        return str(module.path), jax.ffi.ffi_call("loaded_by_threads.increment", out)(jnp.ones(3)).tolist()

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(12)))
    assert results == [(results[0][0], [6, 6, 6])] * 12
