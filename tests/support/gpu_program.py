"""A function with CUDA kernels of every kind, for tests of exported programs; it needs Numba with CUDA support."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import be_runtime
from tests.support.numba_kernels import cuda

SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void negated(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = -x[i];
}
// @BE negate arg[n] ret[n]:like(0) stream
void negate(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  negated<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
"""
RAW = "__global__ void scale(const float* x, float* y, float by) { int i = threadIdx.x; y[i] = by * x[i]; }"


@cuda.jit
def _successor(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] + 1


def gpu_function() -> tuple[Callable[[Any], Any], np.ndarray, np.ndarray]:
    """A function, its argument and its result."""
    module = be_runtime.load_cuda_inline("gpu_program", SOURCE)
    scale = be_runtime.cuda_kernel(RAW, "scale", signature="arg[n] ret[n]:like(0)", grid=1, block="n")
    successor = be_runtime.numba_cuda_kernel(
        _successor, signature="arg[n] ret[n]:like(0)", grid=1, block=64, vmap_method="broadcast_all"
    )

    def run(x: Any) -> Any:
        import jax

        y = scale(module.negate(x.ravel()), by=2.0).reshape(4, 16)
        return jax.vmap(successor)(y) + scale(x.ravel(), by=3.0).reshape(4, 16)

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    return run, x, x + 1
