#include <cuda_runtime.h>

#include "brainevent/common.h"

// Each potential decays for some steps, by dv/dt = -v^3.
__global__ void settle_all(const float* x, float* y, int64_t count, int64_t steps) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float v = x[i];
  for (int64_t s = 0; s < steps; ++s) v -= 0.001f * v * v * v;
  y[i] = v;
}

__global__ void settle_all_back(const float* x, const float* g, float* dx, int64_t count, int64_t steps) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float v = x[i], slope = g[i];
  for (int64_t s = 0; s < steps; ++s) {
    slope *= 1.0f - 0.003f * v * v;
    v -= 0.001f * v * v * v;
  }
  dx[i] = slope;
}

// @BE settle arg[b n] ret[b n] attr.steps:int64 stream parallel[b]
void settle(const BE::Tensor x, BE::Tensor y, int64_t steps, int64_t stream) {
  const int64_t count = x.numel();
  settle_all<<<(count + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), count,
                                                                   steps);
}

// @BE settle_back arg[b n] arg[b n] ret[b n] attr.steps:int64 stream parallel[b]
void settle_back(const BE::Tensor x, const BE::Tensor g, BE::Tensor dx, int64_t steps, int64_t stream) {
  const int64_t count = x.numel();
  settle_all_back<<<(count + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), g.data_ptr<float>(),
                                                                        dx.data_ptr<float>(), count, steps);
}
