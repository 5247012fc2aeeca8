// found as: stream
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void missing_stream_kernel(const float* x, float* y, int64_t n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + 1;
}
// @BE missing_stream arg ret
void missing_stream(const BE::Tensor x, BE::Tensor y) {
  missing_stream_kernel<<<1, 512>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
