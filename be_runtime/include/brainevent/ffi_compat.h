#pragma once

/// \file
/// Conversions between XLA's FFI and this library, for sources that write their own XLA handlers.
///
/// Needs jaxlib's include folder. It works with only `c_api.h`, and together with `xla/ffi/api/ffi.h`, whose buffers
/// `tensor_of` takes.

#include "brainevent/detail/xla_frame.h"
#include "xla/ffi/api/c_api.h"

namespace BE {

/// Return the DType of an XLA element type; `Invalid` for a type that a Tensor cannot hold.
constexpr DType dtype_from_xla(XLA_FFI_DataType dtype) noexcept { return detail::be_dtype_of(dtype); }

/// Return the XLA element type of a DType; `XLA_FFI_DataType_INVALID` for `Invalid`.
constexpr XLA_FFI_DataType dtype_to_xla(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_TO_XLA(dtype, value, type, name, bits, xla, ...) \
  case DType::dtype: return XLA_FFI_DataType_##xla;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_TO_XLA, )
    case DType::Invalid: break;
  }
  return XLA_FFI_DataType_INVALID;
}

namespace internal {

inline Tensor tensor_of_parts(void* data, XLA_FFI_DataType dtype, int64_t rank, const int64_t* dims) {
  const DType known = dtype_from_xla(dtype);
  BE_CHECK(known != DType::Invalid) << "XLA element type " << static_cast<int>(dtype) << " has no BE::DType";
  BE_CHECK(rank <= Tensor::kMaxDims) << "a BE::Tensor has at most " << Tensor::kMaxDims << " dimensions, not " << rank;
  return Tensor(data, known, static_cast<int>(rank), dims);
}

}  // namespace internal

/// Return a view of a buffer of XLA's C API. Throws `CheckError` for a dtype or rank that a Tensor cannot hold.
inline Tensor tensor_of(const XLA_FFI_Buffer& buffer) {
  return internal::tensor_of_parts(buffer.data, buffer.dtype, buffer.rank, buffer.dims);
}

/// Return a view of an `xla::ffi::AnyBuffer`, `Buffer<...>` or, through `*`, a `Result<...>` of `ffi.h`; it
/// throws for the same reasons.
template <class XlaBuffer>
Tensor tensor_of(const XlaBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return internal::tensor_of_parts(buffer.untyped_data(), static_cast<XLA_FFI_DataType>(buffer.element_type()),
                                   static_cast<int64_t>(dims.size()), dims.begin());
}

}  // namespace BE
