#include "brainevent/common.h"
#include "threshold.h"

__global__ void fire_kernel(const float* v, float* spikes, float threshold, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) spikes[i] = mykernels::spike(v[i], threshold);
}

// @BE fire arg[n] ret[n] attr.threshold:float32=1.0 stream
void fire(const BE::Tensor v, BE::Tensor spikes, float threshold, int64_t stream) {
  const int64_t n = v.numel();
  fire_kernel<<<(n + 255) / 256, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(v.data_ptr<float>(),
                                                                                 spikes.data_ptr<float>(), threshold, n);
}
