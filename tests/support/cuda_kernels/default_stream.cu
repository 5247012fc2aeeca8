#include <cuda_runtime.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>

#include "brainevent/common.h"

__global__ void shift_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i] + 1;
}

// @BE shift arg[n]:float32 ret[n]:float32
void shift(const BE::Tensor x, BE::Tensor y) {
  const int n = x.numel_checked_int();
  cudaMemset(y.data(), 0, y.nbytes());
  shift_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}

// @BE first arg[n]:float32 ret[n]:float32
void first(const BE::Tensor x, BE::Tensor y) {
  float value = 0;
  cudaMemcpy(&value, x.data(), sizeof(value), cudaMemcpyDeviceToHost);
  cudaMemcpy(y.data(), x.data(), x.nbytes(), cudaMemcpyDeviceToDevice);
  value += 1;
  cudaMemcpy(y.data(), &value, sizeof(value), cudaMemcpyHostToDevice);
}

// @BE sorted inout[n]:float32
void sorted(BE::Tensor x) { thrust::sort(thrust::device, x.data_ptr<float>(), x.data_ptr<float>() + x.numel()); }
