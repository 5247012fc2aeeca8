"""Kernels inside jit, loops and shard_map, with aliased arguments, between XLA's own operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import source
from tests.support.requirements import OPTIONAL

N = 300


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cuda_inline("transforms", source("transforms"))


def vector(start: float = 0.0) -> jax.Array:
    return jnp.arange(N, dtype=jnp.float32) / 8 + start


def decay(v: jax.Array, current: jax.Array, leak: float = 0.5) -> jax.Array:
    out = jax.ShapeDtypeStruct(v.shape, v.dtype)
    return jax.ffi.ffi_call("transforms.decay", out, vmap_method="broadcast_all")(v, current, leak=np.float32(leak))


def test_between_operations_of_xla():
    """XLA's kernels before and after ours are on the same stream, so nothing waits and nothing is missed."""

    @jax.jit
    def run(v: jax.Array) -> jax.Array:
        for _ in range(50):
            v = jnp.flip(decay(jnp.flip(v) * 2.0, jnp.ones_like(v)))
        return v

    big = jnp.arange(1_000_000, dtype=jnp.float32) % 1000
    np.testing.assert_array_equal(run(big), np.asarray(big) + 50)


@pytest.mark.parametrize("steps", [0, 1, 100])
def test_fori_loop(steps: int):
    one = jnp.ones(N)
    out = jax.jit(lambda v: jax.lax.fori_loop(0, steps, lambda _, v: decay(v, one, 1.0), v))(vector())
    np.testing.assert_array_equal(out, np.asarray(vector()) + steps)


def test_while_loop_and_cond():
    def step(v: jax.Array) -> Any:
        return jax.lax.cond(v[0] < 10, lambda v: decay(v, jnp.ones(N), 1.0), lambda v: decay(v, v, 1.0), v)

    out = jax.jit(lambda v: jax.lax.while_loop(lambda v: v[0] < 100, step, v))(vector())
    np.testing.assert_array_equal(out, (np.asarray(vector()) + 10) * 16)


def increment(x: jax.Array, **options: Any) -> Any:
    outs = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), jnp.int32))
    return jax.ffi.ffi_call("transforms.increment", outs, **options)(x)


IN_PLACE: dict[str, Any] = {"input_output_aliases": {0: 0}}


@pytest.mark.parametrize(("options", "is_same"), [(IN_PLACE, 1), ({}, 0)])
def test_alias_writes_in_place_and_spares_an_array_still_in_use(options: dict[str, Any], is_same: int):
    x = vector()
    (out, same), again = jax.jit(lambda x: (increment(x, **options), x * 1.0))(x)
    assert same.item() == is_same
    np.testing.assert_array_equal(out, np.asarray(x) + 1)
    np.testing.assert_array_equal(again, x)
    np.testing.assert_array_equal(x, np.arange(N) / 8)


def test_alias_in_a_loop_and_with_a_donated_argument():
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda _, x: increment(x, **IN_PLACE)[0], x), donate_argnums=0)
    x = vector()
    np.testing.assert_array_equal(run(x), np.arange(N) / 8 + 10)
    assert x.is_deleted()


def test_sharded_over_every_device():
    devices = jax.devices()
    if len(devices) < 2:
        pytest.skip(OPTIONAL + "a second device")
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    run = jax.jit(jax.shard_map(decay, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False))
    v = jnp.arange(64 * len(devices), dtype=jnp.float32)
    out = run(v, jnp.ones_like(v))
    np.testing.assert_array_equal(out, np.asarray(v) / 2 + 1)
    assert {shard.device for shard in out.addressable_shards} == set(devices)


def test_on_each_device():
    for device in jax.devices():
        v = jax.device_put(vector(), device)
        out = jax.jit(decay)(v, v)
        assert out.devices() == {device}
        np.testing.assert_array_equal(out, 1.5 * np.arange(N) / 8)
