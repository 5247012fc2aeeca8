#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error VectorAdd(ffi::Buffer<ffi::F32> a, ffi::Buffer<ffi::F32> b, ffi::ResultBuffer<ffi::F32> out) {
  const float* x = a.typed_data();
  const float* y = b.typed_data();
  float* z = out->typed_data();
  const int64_t n = static_cast<int64_t>(out->element_count());
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    vector_add, VectorAdd,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
