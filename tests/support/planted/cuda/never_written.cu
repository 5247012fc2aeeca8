// found as: unwritten
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void never_written_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n && i % 3 != 1) y[i] = 1;
}
// @BE never_written arg ret stream
void never_written(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  never_written_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
