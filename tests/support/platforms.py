"""One operation in C++ and in CUDA."""

CPP = r"""
#include "brainevent/common.h"
// @BE scale arg[n]:float32 ret[n]:float32 attr.by:float32=2 parallel[n]
void scale(const BE::Tensor x, BE::Tensor y, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = by * x.data_ptr<float>()[i];
}
// @BE only_cpu arg[n]:float32 ret[n]:float32
void only_cpu(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i];
}
"""
CUDA = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void scale_kernel(const float* x, float* y, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
// @BE scale arg[n]:float32 attr.by:float32=2 ret[n]:float32 stream parallel[n]
void scale(const BE::Tensor x, float by, BE::Tensor y, cudaStream_t stream) {
  const int n = int(x.numel());
  if (n) scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), by, n);
}
// @BE only_gpu ret[1]:float32=0
void only_gpu(BE::Tensor y) {}
"""
