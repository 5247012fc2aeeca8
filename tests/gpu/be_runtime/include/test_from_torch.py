"""Kernels written for PyTorch compute, on XLA's stream."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cuda_inline("from_torch", source("from_torch"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32"])
def test_atomic_additions_of_each_type(dtype: str):
    src, index = jnp.ones(1000, dtype), jnp.arange(1000, dtype=jnp.int32) % 10
    out = call("from_torch.scatter_add", jax.ShapeDtypeStruct((10,), src.dtype), src, index)
    np.testing.assert_array_equal(np.asarray(out, np.float32), 100)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_accessors(dtype: str):
    x = jnp.arange(12, dtype=dtype).reshape(3, 4)
    out = call("from_torch.row_sum", jax.ShapeDtypeStruct((3,), x.dtype), x)
    np.testing.assert_array_equal(np.asarray(out, np.float32), [6, 22, 38])


def test_complex_numbers():
    x = jnp.array([3 + 4j, 1j], jnp.complex64)
    np.testing.assert_allclose(call("from_torch.square", jax.ShapeDtypeStruct((2,), x.dtype), x), [26, 2])


def test_an_entry_point_without_a_stream_has_the_stream_of_the_call():
    like = jax.ShapeDtypeStruct((10,), jnp.float32)
    for _ in range(20):
        out = call("from_torch.scatter_add_without_stream", like, jnp.ones(1000), jnp.zeros(1000, jnp.int32))
        np.testing.assert_array_equal(out, [1000, *[0] * 9])
