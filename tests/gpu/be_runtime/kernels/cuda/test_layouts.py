"""A kernel gets its arrays row by row, however XLA or NumPy holds them before and after."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import be_runtime

ROWS, COLUMNS = 37, 53
SOURCE = """
__global__ void number(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 1000 * x[i] + i;
}
"""


def raw() -> Any:
    kernel = be_runtime.cuda_kernel(
        SOURCE, "number", lambda x: x, grid=lambda x: (x.size + 255) // 256, block=256, vmap_method="broadcast_all"
    )
    return lambda x: kernel(x, n=x.size)


def numba() -> Any:
    cuda: Any = pytest.importorskip("numba.cuda")

    @cuda.jit
    def number(x, out):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            out[i, j] = 1000 * x[i, j] + i * x.shape[1] + j

    def call(x: Any) -> Any:
        outs = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return be_runtime.numba_cuda_kernel(number, outs, launch_dims=x.shape, vmap_method="broadcast_all")(x)

    return call


def expected(x: np.ndarray) -> np.ndarray:
    """Each element, and its place in the array that the kernel gets."""
    return 1000 * x + np.arange(x.size, dtype=x.dtype).reshape(x.shape)


@pytest.fixture(params=[raw, numba])
def number(request: pytest.FixtureRequest) -> Any:
    return request.param()


X = np.random.default_rng(0).integers(0, 10, (ROWS, COLUMNS)).astype(np.float32)


def test_transposed_inside_a_program(number: Any):
    np.testing.assert_array_equal(jax.jit(lambda x: number(x.T))(X), expected(X.T))
    np.testing.assert_array_equal(jax.jit(lambda x: number(x.T).T)(X), expected(X.T).T)
    np.testing.assert_array_equal(jax.jit(lambda x: number(number(x).T))(X), expected(expected(X).T))
    np.testing.assert_array_equal(jax.jit(lambda x: number((x.T @ x)[::2].T))(X), expected((X.T @ X)[::2].T))


@pytest.mark.parametrize("view", [X.T, X[::2, ::-3], np.asfortranarray(X), np.broadcast_to(X[0], X.shape)])
def test_views_of_numpy(number: Any, view: np.ndarray):
    np.testing.assert_array_equal(number(view), expected(view))


def test_a_batch_along_an_inner_axis(number: Any):
    batch = np.stack([X, 2 * X, X + 1], axis=2)
    found = jax.jit(jax.vmap(number, in_axes=2, out_axes=1))(batch)
    np.testing.assert_array_equal(found, np.stack([expected(batch[..., i]) for i in range(3)], axis=1))


def test_layouts_that_are_asked_for_are_those_of_ffi_call():
    options: dict[str, Any] = {"signature": "arg[m k] ret[m k]", "grid": "ceil(m*k/128)", "block": 128}
    turned = be_runtime.cuda_kernel(SOURCE, "number", input_layouts=[(1, 0)], output_layouts=[(1, 0)], **options)
    found = jax.jit(lambda x: turned(x, n=x.size))(X)
    np.testing.assert_array_equal(found, 1000 * X + np.arange(X.size, dtype=np.float32).reshape(COLUMNS, ROWS).T)
