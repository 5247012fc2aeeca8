#include <cuda_runtime.h>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

__global__ void add_kernel(const float* x, const float* y, float* z, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

static ffi::Error VectorAdd(cudaStream_t stream, ffi::Buffer<ffi::F32> a, ffi::Buffer<ffi::F32> b,
                            ffi::ResultBuffer<ffi::F32> out) {
  const int64_t n = static_cast<int64_t>(out->element_count());
  add_kernel<<<(n + 255) / 256, 256, 0, stream>>>(a.typed_data(), b.typed_data(), out->typed_data(), n);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return ffi::Error::Internal(cudaGetErrorString(status));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(vector_add, VectorAdd,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>(),
                              {ffi::Traits::kCmdBufferCompatible});
