"""Raw CUDA kernels: parameters, geometry, vmap, and launches that CUDA or the device refuses."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.kernels.launcher import Kernel, KernelImage, choose_archs
from be_runtime.load.process import PROCESS
from tests.support.cuda import launch_once
from tests.support.jax_names import enable_x64

SOURCE = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <class T, int N>
__global__ void affine(const T* __restrict__ x, T* y, T by, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = by * x[i] + T(N);
}

namespace ops {
extern "C" __global__ void __launch_bounds__(256) half_sum(const __half* x, const __half* y, __half* z) {
  z[threadIdx.x] = __hadd(x[threadIdx.x], y[threadIdx.x]);
}
}

__global__ void reverse(const float* x, float* y) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void scalars(bool a, signed char b, unsigned short c, int d, unsigned long long e, float f, double g,
                        double* out) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = double(e); out[5] = f; out[6] = g;
}

__global__ void cluster_rank(int* out) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) out[blockIdx.x] = rank;
}

__global__ void add_one(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }
"""


def blocks(x: Any) -> Any:
    return (x.size + 255) // 256


def kernel(name: str, outs: Any = lambda x, *_: x, *, grid: Any = 1, block: Any = 256, **options: Any) -> Any:
    return be_runtime.cuda_kernel(SOURCE, name, outs, grid=grid, block=block, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
def test_template_with_scalars_and_a_grid_of_the_shape(dtype: Any):
    with enable_x64(True):
        spelt = {np.float32: "float", np.int32: "int", np.float64: "double"}[dtype]
        affine = kernel(f"affine<{spelt}, 4>", grid=blocks)
        for size in (1, 255, 1000):
            x = np.arange(size).astype(dtype)
            out = jax.jit(lambda x: affine(x, by=3, n=x.size))(x)
            np.testing.assert_array_equal(np.asarray(out), 3 * x + 4)


def test_kernels_of_one_name_in_two_namespaces():
    """Each takes its own scalar: the bits of one type are no number of the other."""
    source = """
    namespace v1 { template <class T> __global__ void scale(const T* x, T* y, int by) {
      y[threadIdx.x] = by * x[threadIdx.x];
    } }
    namespace v2 { template <class T> __global__ void scale(const T* x, T* y, float by) {
      y[threadIdx.x] = by * x[threadIdx.x] + 1;
    } }
    """
    x = np.arange(8, dtype=np.float32)
    for name, expected in (("v1::scale<float>", 2 * x), ("v2::scale<float>", 2 * x + 1)):
        scale = be_runtime.cuda_kernel(source, name, lambda x: x, grid=1, block=8)
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda x, scale=scale: scale(x, by=2))(x)), expected)


def test_half_and_dynamic_shared_memory_beyond_48_kib():
    x = np.arange(64, dtype=np.float16)
    half_sum = kernel("ops::half_sum", block=64)
    np.testing.assert_array_equal(np.asarray(half_sum(x, x)), 2 * x)
    reverse = kernel("reverse", grid=2, block=128, shared_mem=100_000)
    y = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(jax.jit(reverse)(y)), y.reshape(2, 128)[:, ::-1].ravel())


def test_every_scalar_type():
    with enable_x64(True):
        scalars = kernel("scalars", jax.ShapeDtypeStruct((7,), np.float64), block=1)
        found = scalars(a=True, b=-5, c=65535, d=-(2**31), e=2**64 - 2048, f=0.5, g=1e300)
    np.testing.assert_array_equal(np.asarray(found), [1, -5, 65535, -(2**31), 2.0**64 - 2048, 0.5, 1e300])


def test_cluster():
    ranks = kernel("cluster_rank", jax.ShapeDtypeStruct((8,), np.int32), grid=8, block=32, cluster=4)
    np.testing.assert_array_equal(np.asarray(jax.jit(ranks)()), [0, 1, 2, 3] * 2)


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap_runs_each_slice(method: str):
    half_sum = kernel("ops::half_sum", block=8, vmap_method=method)
    x = np.arange(24, dtype=np.float16).reshape(3, 8)
    y = np.arange(8, dtype=np.float16)
    np.testing.assert_array_equal(np.asarray(jax.vmap(half_sum, (0, None))(x, y)), x + y)
    nested = jax.jit(jax.vmap(jax.vmap(half_sum, (0, None)), (None, 0)))
    z = np.arange(16, dtype=np.float16).reshape(2, 8)
    np.testing.assert_array_equal(np.asarray(nested(x, z)), x[None] + z[:, None])


def test_alias_works_in_place():
    add_one = kernel("add_one", block=8, input_output_aliases={0: 0})
    run = jax.jit(lambda x: add_one(add_one(x)))
    np.testing.assert_array_equal(np.asarray(run(jnp.zeros(8))), np.full(8, 2))


def test_empty_outputs_launch_nothing():
    affine = kernel("affine<float, 4>", grid=blocks)
    assert affine(np.zeros((0, 3), np.float32), by=1, n=0).shape == (0, 3)


def test_block_beyond_the_launch_bounds_names_the_limit():
    half_sum = kernel("ops::half_sum", block=512)
    x = np.zeros(512, np.float16)
    with pytest.raises(Exception, match=r"half_sum: a block of 512 threads is too large.*256"):
        half_sum(x, x)


def test_code_for_another_architecture_says_so():
    add_one = kernel("add_one", block=8, compute_capability="sm_100")
    with pytest.raises(Exception, match="add_one: it was compiled for sm_100, which does not run on this device"):
        add_one(np.zeros(8, np.float32))


COPY = """
__global__ void copy(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}
"""
SIZE = 2**22
"""Threads that no GPU runs at once."""


@pytest.fixture
def x() -> Any:
    """On the device, whose context is there from then on: that is where kernels are loaded before they run."""
    return jnp.arange(SIZE, dtype=jnp.float32).block_until_ready()


def test_a_failed_launch_names_the_kernel_and_how_it_was_launched(x: Any):
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit
    def rotate(x, out):
        i = cuda.grid(1)
        out[i] = x[i]
        cuda.cg.this_grid().sync()
        out[i] = x[(i + 1) % x.size]

    def rotated(size: int) -> Any:
        outs = jax.ShapeDtypeStruct((size,), np.float32)
        return jax.jit(be_runtime.numba_cuda_kernel(rotate, outs, grid=size // 128, block=128))

    too_large = rotated(SIZE).lower(x).compile()
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(too_large(x))
    blocks = SIZE // 128
    assert "rotate: the launch failed with CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" in str(caught.value)
    assert f"grid ({blocks}, 1, 1), block (128, 1, 1), shared_mem 0, cluster (1, 1, 1)" in str(caught.value)
    assert "a cooperative grid must fit on the device as a whole" in str(caught.value)
    small = x[:1024]
    np.testing.assert_array_equal(rotated(1024)(small), np.roll(small, -1))


def test_too_much_shared_memory_is_said_when_the_program_is_compiled(x: Any):
    copy = be_runtime.cuda_kernel(COPY, "copy", lambda x: x, grid=SIZE // 256, block=256, shared_mem=250_000)
    lowered = jax.jit(copy).lower(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"copy: shared_mem=250000 is too much.*ask for at most"):
        lowered.compile()


def test_code_is_loaded_when_the_program_is_compiled(x: Any):
    """Code that the driver can't load is found then, and not at a launch, which a CUDA graph may be recording."""
    (arch, *_) = choose_archs(None, PROCESS.session())
    kernel = Kernel("e" * 32, "broken", (KernelImage(arch, "broken", b"no machine code, and none is missing"),))

    lowered = jax.jit(lambda x: launch_once(kernel, x)).lower(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"broken: the driver does not load it: CUDA_ERROR_"):
        lowered.compile()
