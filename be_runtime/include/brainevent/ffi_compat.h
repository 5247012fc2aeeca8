#pragma once

/// \file
/// Conversions between types of XLA's FFI and types of this library, for sources that define an XLA handler.
///
/// The header includes `xla/ffi/api/c_api.h`, which be_runtime finds in jaxlib. A source may also include
/// `xla/ffi/api/ffi.h`: `tensor_of` accepts the buffer classes of `ffi.h`.

#include "brainevent/detail/xla_frame.h"
#include "xla/ffi/api/c_api.h"

namespace BE {

/// Return the DType of an XLA element type, or `Invalid` if the type has no DType.
constexpr DType dtype_from_xla(XLA_FFI_DataType dtype) noexcept { return detail::be_dtype_of(dtype); }

/// Return the XLA element type of a DType, or `XLA_FFI_DataType_INVALID` for `Invalid`.
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

/// Return a view of a buffer of XLA's C API. Throw `CheckError` if the element type has no DType, or if the buffer has
/// more than `BE::kMaxDim` dimensions.
inline Tensor tensor_of(const XLA_FFI_Buffer& buffer) {
  return internal::tensor_of_parts(buffer.data, buffer.dtype, buffer.rank, buffer.dims);
}

/// Return a view of an `xla::ffi::AnyBuffer` or an `xla::ffi::Buffer<...>`; for a `Result<...>`, pass `*result`. Throw
/// `CheckError` if the element type has no DType, or if the buffer has more than `BE::kMaxDim` dimensions.
template <class XlaBuffer>
Tensor tensor_of(const XlaBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return internal::tensor_of_parts(buffer.untyped_data(), static_cast<XLA_FFI_DataType>(buffer.element_type()),
                                   static_cast<int64_t>(dims.size()), dims.begin());
}

}  // namespace BE
