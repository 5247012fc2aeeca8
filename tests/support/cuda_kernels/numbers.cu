#include "brainevent/common.h"

__global__ void step_kernel(float* p, const float* g, BE::Scalar<float> lr, BE::Scalar<int32_t> t, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] -= lr * g[i] + static_cast<float>(t);
}

// @BE step inout[n]:float32 arg[n]:float32 scalar.lr:float32=0.5 scalar.t:int32 stream
void step(BE::Tensor p, const BE::Tensor g, BE::Scalar<float> lr, BE::Scalar<int32_t> t, cudaStream_t stream) {
  const int n = p.numel_checked_int();
  step_kernel<<<(n + 255) / 256, 256, 0, stream>>>(p.data_ptr<float>(), g.data_ptr<float>(), lr, t, n);
}
