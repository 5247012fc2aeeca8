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
from tests.support.runtime import environment, run_python

SOURCE = r"""
#include "brainevent/common.h"

// Rows of the last dimension, so that a batch of rows is rows again; the dimensions before it broadcast.
// @BE add_rows arg arg ret attr.scale:float32
void add_rows(const BE::Tensor x, const BE::Tensor y, BE::Tensor out, float scale) {
  BE_CHECK(x.numel() == out.numel() || y.numel() == out.numel()) << "nothing to broadcast to";
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] =
        x.data_ptr<float>()[i % x.numel()] + scale * y.data_ptr<float>()[i % y.numel()];
}

// @BE shape_of_first
void shape_of_first(const BE::Tensor x, BE::Tensor y, BE::Tensor out) {
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<int32_t>()[i] = x.ndim() * 100 + x.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i];
}

// @BE increment arg ret
void increment(const BE::Tensor x, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + 1;
}

// Adds to what is in the result already, so that it is right only where the result is the argument's memory.
// @BE accumulate arg arg ret
void accumulate(const BE::Tensor total, const BE::Tensor x, BE::Tensor out) {
  BE_CHECK(total.data_ptr() == out.data_ptr()) << "not in place";
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] += x.data_ptr<float>()[i];
}

// @BE cube
void cube(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = x.data_ptr<float>()[i];
    y.data_ptr<float>()[i] = v * v * v;
  }
}

// @BE cube_vjp
void cube_vjp(const BE::Tensor x, const BE::Tensor dy, BE::Tensor dx) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = x.data_ptr<float>()[i];
    dx.data_ptr<float>()[i] = 3 * v * v * dy.data_ptr<float>()[i];
  }
}
"""

METHODS = [
    method
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")
    if method in inspect.getsource(inspect.getmodule(jax.ffi.ffi_call) or jax.ffi)
]


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("transforms", SOURCE)


def increment(x: Any) -> Any:
    return jax.ffi.ffi_call("transforms.increment", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def add_rows(x: Any, y: Any, method: str | None = None) -> Any:
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.ffi.ffi_call("transforms.add_rows", out, vmap_method=method)(x, y, scale=np.float32(2))


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([[1, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400]], np.float32)


def test_every_method_of_vmap_is_tested():
    with pytest.raises(Exception, match="vmap_method"):
        jax.vmap(lambda x, y: add_rows(x, y, "no such method"))(X, Y)
    assert {"sequential", "expand_dims", "broadcast_all"} <= set(METHODS)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("method", METHODS)
def test_vmap_over_both_arguments(method: str, jit: bool):
    mapped: Any = jax.vmap(lambda x, y: add_rows(x, y, method))
    np.testing.assert_array_equal((jax.jit(mapped) if jit else mapped)(X, Y), X + 2 * Y)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "legacy_vectorized"])
def test_vmap_over_one_argument(method: str):
    mapped = jax.jit(jax.vmap(lambda x, y: add_rows(x, y, method), in_axes=(0, None)))
    np.testing.assert_array_equal(mapped(X, Y[1]), X + 2 * Y[1])


@pytest.mark.parametrize("method", METHODS)
def test_vmap_of_vmap(method: str):
    x, y = np.stack([X, X + 1]), np.stack([Y, -Y])
    mapped = jax.jit(jax.vmap(jax.vmap(lambda x, y: add_rows(x, y, method))))
    np.testing.assert_array_equal(mapped(x, y), x + 2 * y)


@pytest.mark.parametrize(
    ("method", "seen"), [("sequential", 103), ("expand_dims", 204), ("broadcast_all", 204)], ids=lambda value: value
)
def test_what_a_mapped_kernel_sees(method: str, seen: int):
    """One row at a time, or the whole batch with a dimension before."""
    outs = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((2,), np.int32))
    copy, shapes = jax.vmap(jax.ffi.ffi_call("transforms.shape_of_first", outs, vmap_method=method))(X)
    np.testing.assert_array_equal(copy, X)
    np.testing.assert_array_equal(shapes, np.full((4, 2), seen))


def test_vmap_without_a_method_is_jax_s_own_error():
    with pytest.raises(RuntimeError, match="vmap") as caught:
        jax.vmap(increment)(X)
    assert caught.type.__module__ == "builtins"
    assert caught.type is not RuntimeError


def test_scan():
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = add_rows(increment(carry), x)
        return carry, carry.sum()

    last, sums = jax.jit(lambda start, xs: jax.lax.scan(step, start, xs))(jnp.zeros(3), Y)
    expected = np.cumsum(1 + 2 * Y, axis=0)
    np.testing.assert_array_equal(last, expected[-1])
    np.testing.assert_array_equal(sums, expected.sum(axis=1))


def test_loops():
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, value: increment(value), x))
    np.testing.assert_array_equal(run(X), X + 1000)
    run = jax.jit(lambda x: jax.lax.while_loop(lambda value: value.sum() < 100, increment, x))
    np.testing.assert_array_equal(run(X), X + 3)


def test_branches():
    run = jax.jit(lambda flag, x: jax.lax.cond(flag, increment, lambda value: value, x))
    np.testing.assert_array_equal(run(True, X), X + 1)
    np.testing.assert_array_equal(run(False, X), X)


def test_input_output_aliases_give_the_kernel_the_same_memory():
    out = jax.ShapeDtypeStruct((3,), np.float32)

    def accumulate(total: Any, x: Any) -> Any:
        call = jax.ffi.ffi_call("transforms.accumulate", out, input_output_aliases={0: 0})
        return call(total, x)

    total = jnp.array([1.0, 2.0, 3.0])
    result = jax.jit(lambda start: jax.lax.fori_loop(0, 10, lambda _, value: accumulate(value, Y[0]), start))(total)
    np.testing.assert_array_equal(result, [11, 102, 1003])
    np.testing.assert_array_equal(jax.jit(accumulate)(total, Y[0]), [2, 12, 103])
    np.testing.assert_array_equal(total, [1, 2, 3], err_msg="an argument that lives on is copied, not overwritten")
    np.testing.assert_array_equal(jax.jit(accumulate, donate_argnums=0)(total, Y[0]), [2, 12, 103])


@jax.custom_vjp
def cube(x: Any) -> Any:
    return jax.ffi.ffi_call("transforms.cube", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")(x)


def _cube_forward(x: Any) -> tuple[Any, Any]:
    return cube(x), x


def _cube_backward(x: Any, dy: Any) -> tuple[Any]:
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return (jax.ffi.ffi_call("transforms.cube_vjp", out, vmap_method="broadcast_all")(x, dy),)


cube.defvjp(_cube_forward, _cube_backward)


def test_gradients_through_custom_vjp():
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(cube(x)))

    def plain(x: Any) -> Any:
        return jnp.sum(jnp.sin(x**3))

    x = jnp.linspace(-1.0, 1.0, 7)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), jax.grad(plain)(x), rtol=1e-5, atol=1e-6)
    rows = jnp.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(jax.grad(loss))(rows), jax.vmap(jax.grad(plain))(rows), rtol=1e-5, atol=1e-5)


def test_gradient_without_a_rule_is_jax_s_own_error():
    with pytest.raises(ValueError, match=r"custom_vjp|differentiat"):
        jax.grad(lambda x: increment(x).sum())(jnp.ones(3))


def test_ahead_of_time():
    compiled = jax.jit(increment).lower(jax.ShapeDtypeStruct((3,), np.float32)).compile()
    np.testing.assert_array_equal(compiled(jnp.ones(3)), [2, 2, 2])
    assert jax.eval_shape(increment, jnp.ones(3)).shape == (3,)


def test_two_devices():
    devices = jax.devices("cpu")
    assert len(devices) >= 2, "the tests' conftest asks for two"
    mesh = Mesh(np.array(devices[:2]), ("d",))
    x = jax.device_put(X, NamedSharding(mesh, P("d")))
    mapped = jax.jit(shard_map(increment, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    result = mapped(x)
    np.testing.assert_array_equal(result, X + 1)
    assert {shard.device for shard in result.addressable_shards} == set(devices[:2])
    for device in devices[:2]:
        np.testing.assert_array_equal(jax.jit(increment)(jax.device_put(X, device)), X + 1)


SHARDED = """
import jax, numpy as np, be_runtime
from jax.sharding import Mesh, PartitionSpec as P
from tests.support.jax_names import shard_map
be_runtime.load_cpp_inline("sharded", '''
#include "brainevent/common.h"
// @BE add arg arg ret
void add(const BE::Tensor x, const BE::Tensor total, BE::Tensor y) {
  BE_CHECK(x.size(0) == 3) << "one device's part has three rows, not " << x.size(0);
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + total.data_ptr<float>()[0];
}''')
assert jax.device_count() == 2
mesh = Mesh(np.array(jax.devices()), ("d",))
def part(x):
    total = jax.lax.psum(x.sum(), "d")
    return jax.ffi.ffi_call("sharded.add", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, total)
x = np.arange(12, dtype=np.float32).reshape(6, 2)
spec = P("d", None)
y = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))(x)
np.testing.assert_array_equal(y, x + x.sum())
assert len(y.addressable_shards) == 2
"""


def test_shard_map_in_a_process_with_two_devices():
    run_python(SHARDED, env=environment(XLA_FLAGS="--xla_force_host_platform_device_count=2"))


def test_many_threads():
    call = jax.jit(lambda x: increment(increment(x)))

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random((50, 20), np.float32)
        return all(np.array_equal(call(x), (x + np.float32(1)) + np.float32(1)) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_many_threads_load_the_same_module():
    source = SOURCE.replace("+ 1;", "+ 5;")

    def work(_: int) -> tuple[str, Any]:
        module = be_runtime.load_cpp_inline("loaded_by_threads", source)
        x = jnp.ones(3)
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return str(module.path), jax.ffi.ffi_call("loaded_by_threads.increment", out)(x)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(12)))
    assert len({path for path, _ in results}) == 1
    for _, result in results:
        np.testing.assert_array_equal(result, [6, 6, 6])
