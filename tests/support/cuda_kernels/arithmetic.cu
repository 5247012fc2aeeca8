// What the flags of the compiler change: exactness, and whether host code is optimized.
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void quotient_kernel(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] / b[i];
}

// @BE quotient
void quotient(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream) {
  const int n = out.numel_checked_int();
  quotient_kernel<<<(n + 63) / 64, 64, 0, (cudaStream_t)stream>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                                                 out.data_ptr<float>(), n);
}

__global__ void norm_kernel(const float* x, float* out, int columns) {
  float sum = 0.0f;
  for (int j = 0; j < columns; ++j) sum += x[blockIdx.x * columns + j] * x[blockIdx.x * columns + j];
  out[blockIdx.x] = sqrtf(sum);
}

// @BE norm
void norm(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  norm_kernel<<<unsigned(x.size(0)), 1, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<float>(),
                                                                  int(x.size(1)));
}

extern "C" __attribute__((visibility("default"))) int host_is_optimized() {
#if defined(__OPTIMIZE__)
  return 1;
#else
  return 0;
#endif
}
