// Beside XLA's own C++ API, in either order, without a clash.
#include "brainevent/common.h"
#include "xla/ffi/api/ffi.h"

#include "brainevent/dispatch.h"
#include "brainevent/ffi_compat.h"
#include "expect.h"

namespace ffi = xla::ffi;

[[maybe_unused]] static ffi::Error entry(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y,
                                         ffi::Result<ffi::Buffer<ffi::F32>> z) {
  const BE::Tensor a = BE::tensor_of(x), b = BE::tensor_of(*y), c = BE::tensor_of(*z);
  BE_CHECK(a.ndim() == b.ndim() + c.ndim());
  return ffi::Error::Success();
}

int main() {
  for (int value = 0; value < 256; ++value) {
    const auto dtype = static_cast<BE::DType>(value);
    if (BE::dtype_bits(dtype) == 0) continue;
    EXPECT(BE::dtype_from_xla(BE::dtype_to_xla(dtype)) == dtype);
  }
  EXPECT(BE::dtype_to_xla(BE::DType::Invalid) == XLA_FFI_DataType_INVALID);
  EXPECT(BE::dtype_from_xla(XLA_FFI_DataType_TOKEN) == BE::DType::Invalid);
  EXPECT(BE::dtype_from_xla(XLA_FFI_DataType_BF16) == BE::DType::BFloat16);

  int64_t dims[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1};
  float data[6];
  XLA_FFI_Buffer buffer = {};
  buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
  buffer.dtype = XLA_FFI_DataType_F32;
  buffer.data = data;
  buffer.rank = 2;
  buffer.dims = dims;
  const BE::Tensor tensor = BE::tensor_of(buffer);
  EXPECT(tensor.data() == data && tensor.ndim() == 2 && tensor.numel() == 6 && tensor.dtype() == BE::DType::Float32);
  EXPECT(BE::tensor_of(ffi::AnyBuffer(&buffer)).numel() == 6);
  buffer.rank = 9;
  thrown_by<BE::CheckError>([&] { BE::tensor_of(buffer); });
  buffer.rank = 2;
  buffer.dtype = XLA_FFI_DataType_TOKEN;
  thrown_by<BE::CheckError>([&] { BE::tensor_of(buffer); });
}
