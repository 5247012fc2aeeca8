// found as: bounds
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void index_outside_kernel(const BE::Tensor x, BE::Tensor y) {
  if (threadIdx.x < x.numel()) y.at<float>(threadIdx.x) = x.at<float>(threadIdx.x + 1);
}
// @BE index_outside arg ret stream
void index_outside(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  index_outside_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x, y);
}
