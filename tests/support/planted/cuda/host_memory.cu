// found as: fault
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void host_memory_kernel(const float* table, const float* x, float* y, int64_t n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * table[threadIdx.x];
}
// @BE host_memory arg ret stream
void host_memory(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  static float* table = new float[512]();
  host_memory_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(table, x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
