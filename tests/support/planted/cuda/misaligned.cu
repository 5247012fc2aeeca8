// found as: misaligned
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void misaligned_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = i + 2 < n ? static_cast<float>(reinterpret_cast<const double*>(x + 1)[i / 2]) : 0;
}
// @BE misaligned arg ret stream
void misaligned(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  misaligned_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
