// found as: bounds
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void wrong_dtype_kernel(const BE::Tensor x, BE::Tensor y) {
  if (threadIdx.x < x.numel() / 2) y.data_ptr<double>()[threadIdx.x] = 1;
}
// @BE wrong_dtype arg ret stream
void wrong_dtype(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  wrong_dtype_kernel<<<1, 512, 0, (cudaStream_t)stream>>>(x, y);
}
