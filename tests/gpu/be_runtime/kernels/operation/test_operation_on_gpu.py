"""One operation with kernels for the CPU and for the GPU, and a kernel of Warp's on the device."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import BenchmarkConfig, XLACustomKernel, numba_cuda_kernel, numba_kernel, warp_kernel
from tests.support.cuda import KERNELS

RAW = 'extern "C" __global__ void thrice(const float* x, float* out) { int i = threadIdx.x; out[i] = 3 * x[i]; }'
X = jnp.arange(8.0)
OUT = jax.ShapeDtypeStruct((8,), jnp.float32)


@pytest.fixture(scope="module")
def operation() -> XLACustomKernel:
    be_runtime.load_cuda_file(KERNELS / "sibling.cu", target_prefix="operation_on_gpu")
    made = XLACustomKernel("thrice")
    made.def_kernel("cuda_module", "gpu", lambda outs: jax.ffi.ffi_call("operation_on_gpu.transform", outs))
    made.def_kernel("jax", "cpu", lambda outs: lambda x: [3 * x])
    made.def_cuda_raw_kernel(lambda outs: be_runtime.cuda_kernel(RAW, "thrice", outs, grid=1, block=8))
    return made


def test_the_platform_decides(operation: XLACustomKernel):
    for device in (jax.devices("cpu")[0], jax.devices("gpu")[0]):
        with jax.default_device(device):
            result = jax.jit(lambda x: operation(x, outs=OUT))(jax.device_put(X, device))
        assert result.devices() == {device}
        np.testing.assert_array_equal(result, 3 * X)


def test_numba_on_both_platforms():
    numba: Any = pytest.importorskip("numba")
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @numba.njit
    def on_cpu(x, out):
        out[:] = 2 * x

    @cuda.jit
    def on_gpu(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 2 * x[i]

    operation = XLACustomKernel("numba_twice")
    operation.def_numba_kernel(lambda outs: numba_kernel(on_cpu, outs))
    operation.def_numba_cuda_kernel(lambda outs: numba_cuda_kernel(on_gpu, outs, launch_dims=8))
    for device in (jax.devices("cpu")[0], jax.devices("gpu")[0]):
        x = jax.device_put(X, device)
        np.testing.assert_array_equal(jax.jit(lambda x: operation(x, outs=OUT))(x), 2 * X)


def test_a_benchmark_on_the_device(operation: XLACustomKernel):
    operation.def_benchmark_data(lambda platform: [BenchmarkConfig("8", (X,), {"outs": OUT})])
    result = operation.benchmark("gpu", n_runs=2, calls=20)
    assert {each.backend: each.error for each in result.records} == {"cuda_module": "", "cuda_raw": ""}


def test_a_warp_kernel_on_the_device():
    pytest.importorskip("warp")
    from tests.support import warp_kernels

    run = warp_kernel(warp_kernels.scale, jax.ShapeDtypeStruct((3,), jnp.float32))
    result = jax.jit(lambda x: run(x, 2.0))(jax.device_put(jnp.arange(3.0), jax.devices("gpu")[0]))
    assert result.devices() == {jax.devices("gpu")[0]}
    np.testing.assert_array_equal(result, [0, 2, 4])
