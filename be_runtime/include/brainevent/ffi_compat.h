#pragma once

/// \file
/// Between XLA's FFI and this library, for sources that write their own XLA handlers.
///
/// Needs jaxlib's include folder. Works on `c_api.h` alone, and beside `xla/ffi/api/ffi.h`, whose buffers `tensor_of`
/// takes.

#include "brainevent/check.h"
#include "brainevent/dtype.h"
#include "brainevent/tensor.h"
#include "xla/ffi/api/c_api.h"

namespace BE {

/// The DType of an XLA element type; `Invalid` for those that a Tensor cannot hold.
constexpr DType dtype_from_xla(XLA_FFI_DataType dtype) noexcept {
  switch (dtype) {
    case XLA_FFI_DataType_PRED: return DType::Bool;
    case XLA_FFI_DataType_S8: return DType::Int8;
    case XLA_FFI_DataType_S16: return DType::Int16;
    case XLA_FFI_DataType_S32: return DType::Int32;
    case XLA_FFI_DataType_S64: return DType::Int64;
    case XLA_FFI_DataType_U8: return DType::UInt8;
    case XLA_FFI_DataType_U16: return DType::UInt16;
    case XLA_FFI_DataType_U32: return DType::UInt32;
    case XLA_FFI_DataType_U64: return DType::UInt64;
    case XLA_FFI_DataType_F16: return DType::Float16;
    case XLA_FFI_DataType_F32: return DType::Float32;
    case XLA_FFI_DataType_F64: return DType::Float64;
    case XLA_FFI_DataType_BF16: return DType::BFloat16;
    case XLA_FFI_DataType_C64: return DType::Complex64;
    case XLA_FFI_DataType_C128: return DType::Complex128;
    default: return DType::Invalid;
  }
}

/// The XLA element type of a DType; `XLA_FFI_DataType_INVALID` for `Invalid`.
constexpr XLA_FFI_DataType dtype_to_xla(DType dtype) noexcept {
  switch (dtype) {
    case DType::Bool: return XLA_FFI_DataType_PRED;
    case DType::Int8: return XLA_FFI_DataType_S8;
    case DType::Int16: return XLA_FFI_DataType_S16;
    case DType::Int32: return XLA_FFI_DataType_S32;
    case DType::Int64: return XLA_FFI_DataType_S64;
    case DType::UInt8: return XLA_FFI_DataType_U8;
    case DType::UInt16: return XLA_FFI_DataType_U16;
    case DType::UInt32: return XLA_FFI_DataType_U32;
    case DType::UInt64: return XLA_FFI_DataType_U64;
    case DType::Float16: return XLA_FFI_DataType_F16;
    case DType::Float32: return XLA_FFI_DataType_F32;
    case DType::Float64: return XLA_FFI_DataType_F64;
    case DType::BFloat16: return XLA_FFI_DataType_BF16;
    case DType::Complex64: return XLA_FFI_DataType_C64;
    case DType::Complex128: return XLA_FFI_DataType_C128;
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

/// A view of a buffer of XLA's C API. Throws `CheckError` for a dtype or rank that a Tensor cannot hold.
inline Tensor tensor_of(const XLA_FFI_Buffer& buffer) {
  return internal::tensor_of_parts(buffer.data, buffer.dtype, buffer.rank, buffer.dims);
}

/// A view of an `xla::ffi::AnyBuffer`, `Buffer<...>` or, through `*`, a `Result<...>` of `ffi.h`; throws likewise.
template <class XlaBuffer>
Tensor tensor_of(const XlaBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return internal::tensor_of_parts(buffer.untyped_data(), static_cast<XLA_FFI_DataType>(buffer.element_type()),
                                   static_cast<int64_t>(dims.size()), dims.begin());
}

}  // namespace BE
