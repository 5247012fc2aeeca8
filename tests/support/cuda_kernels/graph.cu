// A launcher that counts, on the host, how often it is called and how often while its stream is being recorded.
#include <cuda_runtime.h>

#include <atomic>

#include "brainevent/common.h"

static std::atomic<int> calls{0}, recorded{0};

__global__ void step_kernel(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1.0f;
}

// @BE step
void step(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BE_CUDA_CHECK(cudaStreamIsCapturing((cudaStream_t)stream, &status));
  ++calls;
  recorded += status == cudaStreamCaptureStatusActive;
  const int n = x.numel_checked_int();
  step_kernel<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  BE_CHECK_KERNEL_LAUNCH();
}

extern "C" __attribute__((visibility("default"))) int count_calls() { return calls; }

extern "C" __attribute__((visibility("default"))) int count_recorded() { return recorded; }
