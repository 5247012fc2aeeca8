"""Attributes of every kind, optional arrays, any number of them, and elements of 8 bits and fewer, on a device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source
from tests.support.small_types import FLOAT8, PACKED, SMALL, every_code, told_apart

X = [np.full((3, 100), value, np.float32) for value in (1.0, 2.0, 5.0)]
OUT = jax.ShapeDtypeStruct(X[0].shape, np.float32)
FLOAT32 = np.int32(11)
"""XLA's number."""


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cuda_inline("kinds", source("kinds"))
    be_runtime.load_cuda_inline("small", source("small_types"))


def combine(*arrays: Any, **attrs: Any) -> Any:
    given = {"weights": np.array([1.0, 10.0]), "map": {"offset": np.float32(100)}, "type": FLOAT32, **attrs}
    return call("kinds.combine", OUT, *arrays, **given)


def test_a_call_with_all_of_it():
    assert np.all(combine(*X) == 1 + 20 + 500)
    assert np.all(combine(*X[:2], be_present=np.int64(0)) == 21)
    scaled = {"scale": np.float32(2), "offset": np.float32(-1)}
    assert np.all(combine(*X, map=scaled, mode="mean", name="n", be_present=np.int64(1)) == 21 - 5)


def test_any_number_of_results():
    shapes = [(4,), (2, 3), ()]
    arrays = [np.random.default_rng(0).random(shape).astype(np.float32) for shape in shapes]
    outs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    *copies, count = call("kinds.copies", [*outs, jax.ShapeDtypeStruct((1,), np.uint8)], *arrays)
    for copy, array in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal(copy, array)
    assert count.tolist() == [3]


def test_such_calls_can_be_recorded_in_a_cuda_graph():
    def chain(x: Any) -> Any:
        for _ in range(8):
            x = jax.ffi.ffi_call("kinds.combine", OUT)(
                x, x, weights=np.array([0.5]), map={"offset": np.float32(0.5)}, type=FLOAT32
            )
        return x

    np.testing.assert_allclose(jax.jit(chain)(X[1]), X[1])


RAW = """
__global__ void copy(const unsigned char* x, unsigned char* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""


def like(x: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


def copied(x: Any, bits: int) -> Any:
    """By a raw kernel that knows no type but bytes."""
    kernel = be_runtime.cuda_kernel(RAW, "copy", lambda x: x, grid=9, block=32, vmap_method="broadcast_all")
    return kernel(x, n=-(-x.size * bits // 8))


@pytest.mark.parametrize("count", [1, 13, 256, 1001])
@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_each_type_round_trips_bit_for_bit(row: Any, count: int):
    x = every_code(row.name, count)
    out = call("small.copy", like(x), x)
    assert (out.dtype, told_apart(out)) == (x.dtype, told_apart(x))
    if count < 256:
        assert told_apart(copied(x, row.bits)) == told_apart(x)


@pytest.mark.parametrize("row", FLOAT8, ids=lambda row: row.name)
def test_conversions_on_the_device_are_those_of_the_host(row: Any):
    x = every_code(row.name)
    exact = x.astype(np.float32)
    np.testing.assert_array_equal(call("small.to_float", like(x, np.float32), x), exact)
    bits = exact.view(np.uint32)
    points = np.concatenate([bits, *(bits + np.uint32(1 << dropped) for dropped in range(18, 23))])
    noise = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    values = np.concatenate([points - np.uint32(1), points, points + np.uint32(1), noise]).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(x.dtype)
    assert told_apart(call("small.from_float", like(expected), values)) == told_apart(expected)


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_elements_that_share_bytes_are_read_and_written_one_by_one(row: Any):
    x = every_code(row.name, 1001)
    assert told_apart(call("small.reverse", like(x), x)) == told_apart(x[::-1])


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_a_batch_of_whole_bytes_is_launched_slice_by_slice(row: Any):
    x = every_code(row.name, 48).reshape(3, 16)
    assert told_apart(jax.jit(jax.vmap(lambda x: copied(x, row.bits)))(jnp.asarray(x))) == told_apart(x)


def test_cuda_s_own_types_are_taken_by_raw_kernels():
    text = """
    #include <cuda_fp8.h>
    __global__ void halve(const __nv_fp8_e4m3* x, __nv_fp8_e4m3* y) {
      y[threadIdx.x] = __nv_fp8_e4m3(0.5f * float(x[threadIdx.x]));
    }
    """
    x = every_code("float8_e4m3fn", 64)
    halve = be_runtime.cuda_kernel(text, "halve", lambda x: x, grid=1, block=64)
    assert told_apart(halve(x)) == told_apart((x.astype(np.float32) / 2).astype(x.dtype))
