// found as: unwritten
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void uninitialised_read_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] += x[i];
}
// @BE uninitialised_read arg ret stream
void uninitialised_read(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  uninitialised_read_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
