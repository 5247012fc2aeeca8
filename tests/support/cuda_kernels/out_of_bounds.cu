// A kernel that writes one element too many: what the sanitizer must find.
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void overrun_kernel(float* out, int n) {
  const int i = threadIdx.x;
  if (i <= n) out[i] = 1.0f;
}

// @BE overrun
void overrun(BE::Tensor out, int64_t stream) {
  overrun_kernel<<<1, 128, 0, (cudaStream_t)stream>>>(out.data_ptr<float>(), out.numel_checked_int());
}
