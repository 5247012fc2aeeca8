#pragma once

/// \file
/// XLA's buffers as tensors. The codes of element types are those of `XLA_FFI_DataType`.

#include "brainevent/tensor.h"
#include "xla/ffi/api/c_api.h"

namespace BE::detail {

/// What a Tensor calls the element types that XLA counts; `Invalid` for those that it can't hold.
constexpr DType kElementTypes[] = {
    DType::Invalid, DType::Bool,    DType::Int8,    DType::Int16,     DType::Int32,    DType::Int64,  DType::UInt8,
    DType::UInt16,  DType::UInt32,  DType::UInt64,  DType::Float16,   DType::Float32,  DType::Float64, DType::Invalid,
    DType::Invalid, DType::Complex64, DType::BFloat16, DType::Invalid, DType::Complex128,
};
constexpr unsigned kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);

/// A bit for each element type that a Tensor can hold.
constexpr uint64_t known_element_types() noexcept {
  uint64_t known = 0;
  for (unsigned code = 0; code < kElementTypeCount; ++code)
    if (kElementTypes[code] != DType::Invalid) known |= uint64_t{1} << code;
  return known;
}

inline __attribute__((always_inline)) const XLA_FFI_Buffer* as_buffer(const void* buffer) noexcept {
  return static_cast<const XLA_FFI_Buffer*>(buffer);
}

/// Whether a Tensor can be a view of a buffer. It reads nothing that isn't beside the elements' address, and doesn't
/// branch.
inline __attribute__((always_inline)) bool holds(const void* buffer) noexcept {
  constexpr uint64_t kKnown = known_element_types();
  const unsigned code = static_cast<unsigned>(as_buffer(buffer)->dtype);
  return (code < 64) & (kKnown >> (code & 63) & 1) & (as_buffer(buffer)->rank <= Tensor::kMaxDims);
}

/// A Tensor over a buffer for which `holds` is true.
inline __attribute__((always_inline)) Tensor view(const void* buffer) noexcept {
  const XLA_FFI_Buffer* from = as_buffer(buffer);
  return Tensor(from->data, kElementTypes[from->dtype], static_cast<int>(from->rank), from->dims);
}

}  // namespace BE::detail
