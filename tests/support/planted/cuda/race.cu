// found as: race
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void race_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  __shared__ float shared[512];
  if (i < n) shared[threadIdx.x] = x[i];
  if (i < n) y[i] = shared[n - 1 - threadIdx.x];
}
// @BE race arg ret stream
void race(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  race_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
