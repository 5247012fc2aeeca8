#include <cstdint>

#include "xla/ffi/api/c_api.h"

static bool answer_metadata(XLA_FFI_CallFrame* frame) {
  const auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  return true;
}

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* vector_add(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  auto* a = static_cast<XLA_FFI_Buffer*>(frame->args.args[0]);
  auto* b = static_cast<XLA_FFI_Buffer*>(frame->args.args[1]);
  auto* out = static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  const float* x = static_cast<const float*>(a->data);
  const float* y = static_cast<const float*>(b->data);
  float* z = static_cast<float*>(out->data);
  int64_t n = 1;
  for (int64_t i = 0; i < out->rank; ++i) n *= out->dims[i];
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
  return nullptr;
}
