// found as: values
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void not_a_number_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] / x[i];
}
// @BE not_a_number arg ret stream
void not_a_number(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  not_a_number_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
