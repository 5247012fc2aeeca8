#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void axpy_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) out[i] = 2 * x[i] + y[i];
}

// @BE axpy arg[... n]:float32 arg[... n]:float32 ret[... n]:float32 stream attr.less:int64=0
void axpy(const BE::Tensor x, const BE::Tensor y, BE::Tensor out, int64_t stream, int64_t less) {
  axpy_kernel<<<(out.numel() + 255) / 256, 256, 0, (cudaStream_t)stream>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), out.numel() - less);
}
