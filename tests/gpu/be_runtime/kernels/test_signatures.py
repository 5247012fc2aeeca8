"""Kernels with a signature: results, scratch memory, batches, sizes, effects; and layouts: arrays arrive row by row."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import cuda_kernel, numba_cuda_callable, numba_cuda_kernel
from tests.support.cuda import run_json

# Launches of Numba's own are small, and Numba warns of it; under pytest a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size")

ROWS, COLUMNS = 5, 300
A = np.random.default_rng(0).integers(0, 9, (ROWS, COLUMNS)).astype(np.float32)
SOURCE = """
// One block for each row: differences to the row's first element, by way of scratch memory.
__global__ void shifted(const float* x, float* y, float* room, int k, float by) {
  const int row = blockIdx.x;
  for (int i = threadIdx.x; i < k; i += blockDim.x) room[row * k + i] = by * x[row * k + i];
  __syncthreads();
  for (int i = threadIdx.x; i < k; i += blockDim.x) y[row * k + i] = room[row * k + i] - room[row * k];
}

__device__ int count = 0;
__global__ void stamp(const float* x, int* y) { *y = count++; }
"""
SHIFTED = "arg[n k] ret[n k]:like(0) scratch[4*n*k] attr.by=1"


def raw_shifted(**options: Any) -> Any:
    run = cuda_kernel(SOURCE, "shifted", signature=SHIFTED, grid="n", block="min(ceil(k/32)*32, 128)", **options)
    return lambda x: run(x, k=x.shape[-1])


def numba_shifted(**options: Any) -> Any:
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit
    def shifted(x, y, room):
        row = cuda.blockIdx.x
        values = room.view(np.float32)
        for i in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
            values[row * x.shape[1] + i] = x[row, i]
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
            y[row, i] = values[row * x.shape[1] + i] - values[row * x.shape[1]]

    signature = SHIFTED.removesuffix(" attr.by=1")
    return numba_cuda_kernel(shifted, signature=signature, grid="n", block="min(k,128)", **options)


MAKERS = [raw_shifted, numba_shifted]


@pytest.mark.parametrize("make", MAKERS)
def test_results_scratch_memory_and_sizes_follow_from_the_signature(make: Any):
    run = make()
    for x in (A, A[:2], A[:, :7], A[:1, :1]):
        np.testing.assert_array_equal(run(x), x - x[:, :1])
        np.testing.assert_array_equal(jax.jit(lambda x: run(x) + run(2 * x))(x), 3 * (x - x[:, :1]))
    assert run(A[:0]).shape == (0, COLUMNS)


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
@pytest.mark.parametrize("make", MAKERS)
def test_each_slice_of_a_batch_has_scratch_memory(make: Any, method: str):
    batch = np.stack([A, A * A, A + 1])[:, :, :7]
    run = make(vmap_method=method)
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(batch), batch - batch[:, :, :1])


@pytest.mark.parametrize(("options", "calls"), [({}, 1), ({"has_side_effect": True}, 3), ({"ordered": True}, 3)])
def test_a_call_whose_result_is_unused_is_kept_for_its_effect(options: dict[str, Any], calls: int):
    # A device variable is the kernel's own: another source has a count of its own.
    source = f"// {sorted(options)}\n{SOURCE}"
    stamp = cuda_kernel(source, "stamp", signature="arg[] ret[]:int32", grid=1, block=1, **options)
    first = int(stamp(0.0))
    jax.jit(lambda x: (stamp(x), stamp(x + 1), x)[2])(1.0).block_until_ready()
    assert int(stamp(0.0)) == first + calls


ORDERED = """
import json, sys, jax, jax.numpy as jnp
from be_runtime import cuda_kernel
stamp = cuda_kernel(sys.argv[1], "stamp", signature="arg[] ret[]:int32", grid=1, block=1, ordered=True)

@jax.jit
def program(x):
    first = [stamp(x + i) for i in range(26)]
    looped = jax.lax.fori_loop(0, 5, lambda _, at: stamp(at.astype(jnp.float32)), jnp.int32(0))
    return [*first, looped, stamp(x)]

print(json.dumps([[int(each) for each in program(1.0)] for _ in range(3)]))
"""


@pytest.mark.parametrize("graphs", ["", "FUSION,CUSTOM_CALL,WHILE"])
def test_ordered_calls_run_in_the_order_of_the_program(graphs: str):
    flags = f"--xla_gpu_enable_command_buffer={graphs} --xla_gpu_graph_min_graph_size=1"
    for turn, found in enumerate(run_json(ORDERED, SOURCE, XLA_FLAGS=flags)):
        start = 32 * turn
        assert found == [*range(start, start + 26), start + 30, start + 31]


def test_python_that_launches_gets_scratch_memory_too():
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit
    def double(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 2 * x[i]

    def fourfold(x, out, room, stream):
        middle = room.view(np.float32)
        double[8, 64, stream](x, middle)
        double[8, 64, stream](middle, out)

    run = numba_cuda_callable(fourfold, signature="arg[n] ret[n] scratch[4*n]", graph=True, ordered=True)
    np.testing.assert_array_equal(jax.jit(run)(A[0]), 4 * A[0])


HEIGHT, WIDTH = 37, 53
NUMBER = """
__global__ void number(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 1000 * x[i] + i;
}
"""


def raw() -> Any:
    kernel = be_runtime.cuda_kernel(
        NUMBER, "number", lambda x: x, grid=lambda x: (x.size + 255) // 256, block=256, vmap_method="broadcast_all"
    )
    return lambda x: kernel(x, n=x.size)


def numba() -> Any:
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

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


X = np.random.default_rng(0).integers(0, 10, (HEIGHT, WIDTH)).astype(np.float32)


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
    turned = be_runtime.cuda_kernel(NUMBER, "number", input_layouts=[(1, 0)], output_layouts=[(1, 0)], **options)
    found = jax.jit(lambda x: turned(x, n=x.size))(X)
    np.testing.assert_array_equal(found, 1000 * X + np.arange(X.size, dtype=np.float32).reshape(WIDTH, HEIGHT).T)
