// found as: crash
#include <cuda_runtime.h>

#include "brainevent/common.h"

static int deep(int n) {
  volatile char room[4096];
  room[n & 4095] = 1;
  return n <= 0 ? room[0] : deep(n - 1) + room[1];
}
__global__ void stack_overflow_kernel(float* y, int64_t n, float value) {
  if (threadIdx.x < n) y[threadIdx.x] = value;
}
// @BE stack_overflow arg ret stream
void stack_overflow(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const float value = static_cast<float>(deep(1 << 28));
  stack_overflow_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(y.data_ptr<float>(), x.numel(), value);
}
