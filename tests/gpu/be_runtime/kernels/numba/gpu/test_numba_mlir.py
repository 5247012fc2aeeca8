"""`numba_cuda_kernel` with kernels of numba-cuda-mlir, the successor of numba-cuda."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime

pytest.importorskip("numba_cuda_mlir", reason="no numba-cuda-mlir", exc_type=ImportError)
from numba_cuda_mlir import cuda, types


@cuda.jit(device=True)
def twice(value):
    return 2 * value


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = twice(x[i]) + y[i]


@cuda.jit
def transposed(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = x[i, j] * x.shape[0] + out.shape[0]


@cuda.jit
def sums(x, out):
    shared = cuda.shared.array(256, types.float32)
    i = cuda.threadIdx.x
    shared[i] = math.sqrt(x[cuda.blockIdx.x, i])
    cuda.syncthreads()
    if i == 0:
        total = np.float32(0)
        for each in range(256):
            total += shared[each]
        out[cuda.blockIdx.x] = total


def test_a_device_function_and_an_odd_size():
    x, y = jnp.arange(1001, dtype=jnp.float32), jnp.ones(1001)
    run = be_runtime.numba_cuda_kernel(add, signature="arg[n] arg[n] ret[n]", launch_dims="n")
    for program in (run, jax.jit(run)):
        np.testing.assert_array_equal(program(x, y), 2 * np.arange(1001, dtype=np.float32) + 1)


def test_shapes_and_strides_are_in_their_places():
    x = jnp.arange(6 * 35, dtype=jnp.int32).reshape(6, 35)
    run = be_runtime.numba_cuda_kernel(transposed, signature="arg[n k] ret[k n]", launch_dims=("n", "k"))
    np.testing.assert_array_equal(run(x), np.asarray(x).T * 6 + 35)


def test_a_batch_is_a_launch():
    x = jnp.arange(3 * 2 * 64, dtype=jnp.float32).reshape(3, 2, 64)
    run = be_runtime.numba_cuda_kernel(add, signature="arg[... n] arg[... n] ret[... n]", launch_dims="n")
    np.testing.assert_array_equal(jax.vmap(jax.vmap(run))(x, x), 3 * np.asarray(x))
    np.testing.assert_array_equal(
        jax.vmap(run, (0, None))(x[:, 0], x[0, 0]), 2 * np.asarray(x[:, 0]) + np.asarray(x[0, 0])
    )


def test_shared_memory_in_calls_that_a_graph_records():
    x = jnp.arange(4 * 256, dtype=jnp.float32).reshape(4, 256)
    run = be_runtime.numba_cuda_kernel(sums, signature="arg[n 256] ret[n]", grid="n", block=256)
    many = jax.jit(lambda x: jnp.stack([run(x + number) for number in range(6)]))
    expected = [np.sqrt(np.asarray(x) + number).sum(1) for number in range(6)]
    for _ in range(3):
        np.testing.assert_allclose(many(x), expected, rtol=1e-5)
