#include "brainevent/common.h"

template <typename T>
__global__ void add_kernel(const T* x, const T* y, T* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = x[i] + y[i];
}

// @BE add<T> arg[n]:T arg[n]:T ret[n]:T stream T=float32|float64|float16|bfloat16|int32
template <typename T>
void add(const BE::Tensor x, const BE::Tensor y, BE::Tensor sum, cudaStream_t stream) {
  const int n = x.numel_checked_int();
  add_kernel<T><<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<T>(), y.data_ptr<T>(), sum.data_ptr<T>(), n);
}
