"""Compiles a CUDA kernel for sm_90 with the environment's nvcc; no GPU is needed."""

import sys

import be_runtime
import be_toolchain

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "brainevent/common.h"

__global__ void scale_kernel(const float* x, float* out, int64_t n, float factor) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __half2float(__float2half(factor)) * x[i];
}

// @BE scale
void scale(const BE::Tensor x, BE::Tensor out, float factor, int64_t stream) {
    scale_kernel<<<(x.numel() + 255) / 256, 256, 0, (cudaStream_t)stream>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), factor);
    BE_CHECK_KERNEL_LAUNCH();
}
"""

toolkit = be_toolchain.resolve(be_toolchain.ToolchainRequest(need_cuda=True)).cuda
assert toolkit is not None
for program in (toolkit.nvcc, toolkit.host_compiler.path):
    assert program is not None
    assert program.is_relative_to(sys.prefix), f"{program} is not this environment's"

module = be_runtime.load_cuda_inline(
    "recipe_cuda", SOURCE, compute_capability="sm_90", auto_register=False, force_rebuild=True
)
assert b"sm_90" in module.path.read_bytes()
print("compiled for sm_90 with", toolkit.nvcc, "and", toolkit.host_compiler.path)
