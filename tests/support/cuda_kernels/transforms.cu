// What loops and aliases need: one kernel says whether its result lies where its argument lies.
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void decay_kernel(const float* v, const float* input, float* out, int n, float leak) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = leak * v[i] + input[i];
}

// @BE decay
void decay(const BE::Tensor v, const BE::Tensor input, BE::Tensor out, float leak, int64_t stream) {
  const int n = out.numel_checked_int();
  decay_kernel<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(
      v.data_ptr<float>(), input.data_ptr<float>(), out.data_ptr<float>(), n, leak);
}

__global__ void increment_kernel(const float* x, float* out, int32_t* same, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1.0f;
  if (i == 0) *same = x == out;
}

// `same` says whether the result lies where the argument lies.
// @BE increment
void increment(const BE::Tensor x, BE::Tensor out, BE::Tensor same, int64_t stream) {
  const int n = x.numel_checked_int();
  increment_kernel<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), same.data_ptr<int32_t>(), n);
}
