// What vmap, loops and aliases need: kernels that say which shapes and pointers they were given.
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void weigh_kernel(const float* x, const float* w, float* out, int64_t n_x, int64_t n_w, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i % n_x] + 2.0f * w[i % n_w];
}

__global__ void fill_kernel(int32_t* out, int64_t n, int32_t value) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

// x + 2 w, where either may lack the leading dimension or have 1 there; `seen` is filled with w's rank times 100 plus
// its first extent.
// @BE weigh
void weigh(const BE::Tensor x, const BE::Tensor w, BE::Tensor out, BE::Tensor seen, int64_t stream) {
  const int64_t n = out.numel();
  weigh_kernel<<<unsigned((n + 255) / 256), 256, 0, (cudaStream_t)stream>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), x.numel(), w.numel(), n);
  fill_kernel<<<unsigned((seen.numel() + 255) / 256), 256, 0, (cudaStream_t)stream>>>(
      seen.data_ptr<int32_t>(), seen.numel(), int32_t(100 * w.ndim() + w.size(0)));
}

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
