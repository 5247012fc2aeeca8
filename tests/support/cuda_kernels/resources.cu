#include "brainevent/common.h"
#include <cuda_runtime.h>
template <int T> __global__ void rows(const int* ptr, const int* col, const float* v, const float* x, float* y, int n) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / T, lane = threadIdx.x % T;
  if (row >= n) return;
  float s = 0;
  for (int i = ptr[row] + lane; i < ptr[row + 1]; i += T) s += v[i] * x[col[i]];
  for (int d = T / 2; d; d /= 2) s += __shfl_down_sync(~0u, s, d, T);
  if (!lane) y[row] = s;
}
__global__ void local_array(const int* k, float* y, int n) {
  float a[64];
  for (int i = 0; i < 64; ++i) a[i] = i * 0.5f + y[i];
  for (int j = 0; j < n; ++j) a[k[j] & 63] += 1.0f;
  float s = 0; for (int i = 0; i < 64; ++i) s += a[(i * k[0]) & 63];
  y[threadIdx.x] = s;
}
__global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
  __shared__ float t[256];
  float a[48];
#pragma unroll
  for (int i = 0; i < 48; ++i) a[i] = x[i * 1024 + threadIdx.x];
  t[threadIdx.x & 255] = a[0]; __syncthreads();
  for (int k = 0; k < 100; ++k) {
#pragma unroll
    for (int i = 0; i < 48; ++i) a[i] = a[i] * a[(i + 7) % 48] + t[k];
  }
  float s = 0;
#pragma unroll
  for (int i = 0; i < 48; ++i) s += a[i];
  y[threadIdx.x] = s;
}
// @BE mul arg[m] arg[k] arg[k] arg[n] ret[n] stream
void mul(const BE::Tensor p, const BE::Tensor c, const BE::Tensor v, const BE::Tensor x, BE::Tensor y, int64_t stream) {
  rows<4><<<1, 256, 0, (cudaStream_t)stream>>>(p.data_ptr<int>(), c.data_ptr<int>(), v.data_ptr<float>(), x.data_ptr<float>(), y.data_ptr<float>(), y.numel());
}
