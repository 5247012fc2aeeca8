#include <cuda_runtime.h>

#include <cstdint>

#include "xla/ffi/api/c_api.h"

__global__ void add_kernel(const float* x, const float* y, float* z, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

static bool answer_metadata(XLA_FFI_CallFrame* frame) {
  const auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  return true;
}

static XLA_FFI_Error* failure(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args create{};
  create.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  create.message = message;
  create.errc = XLA_FFI_Error_Code_INTERNAL;
  return api->XLA_FFI_Error_Create(&create);
}

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* vector_add(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  XLA_FFI_Stream_Get_Args get{};
  get.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  get.ctx = frame->ctx;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&get)) return error;
  auto* a = static_cast<XLA_FFI_Buffer*>(frame->args.args[0]);
  auto* b = static_cast<XLA_FFI_Buffer*>(frame->args.args[1]);
  auto* out = static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  int64_t n = 1;
  for (int64_t i = 0; i < out->rank; ++i) n *= out->dims[i];
  add_kernel<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(get.stream)>>>(
      static_cast<const float*>(a->data), static_cast<const float*>(b->data), static_cast<float*>(out->data), n);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return failure(frame->api, cudaGetErrorString(status));
  return nullptr;
}
