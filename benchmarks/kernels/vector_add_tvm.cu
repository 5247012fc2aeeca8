#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__global__ void add_kernel(const float* x, const float* y, float* z, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  const DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  add_kernel<<<(z.numel() + 255) / 256, 256, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
                                                          static_cast<const float*>(y.data_ptr()),
                                                          static_cast<float*>(z.data_ptr()), z.numel());
}
