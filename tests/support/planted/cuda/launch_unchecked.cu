// found as: error
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void launch_unchecked_kernel(float* y, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = 1;
}
// @BE launch_unchecked arg ret stream
void launch_unchecked(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  launch_unchecked_kernel<<<1, 2048, 0, (cudaStream_t)stream>>>(y.data_ptr<float>(), x.numel());
}
