// found as: inputs
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void input_write_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = 1;
  if (i == 2) const_cast<float*>(x)[i] = 9;
}
// @BE input_write arg ret stream
void input_write(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  input_write_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
