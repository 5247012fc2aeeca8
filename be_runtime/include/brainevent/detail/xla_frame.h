#pragma once

/// \file
/// What a handler reads of XLA's call frame, and the buffers in it as tensors.
///
/// The structures are those of `xla/ffi/api/c_api.h`, up to the last member that is read; native/handler.cc compares
/// them. They are written out here because an author's unit includes this: XLA's header is refused by `-Wpedantic`, and
/// takes longer to compile. Names begin with `be_`, since the author's macros come before.

#include "brainevent/tensor.h"

#pragma pack(push, 8)

namespace BE::detail {

struct XlaBuffer {
  size_t be_struct_size;
  void* be_extension;
  int be_dtype;
  void* be_data;
  int64_t be_rank;
  const int64_t* be_dims;
};

/// Arguments, results or attributes.
struct XlaItems {
  size_t be_struct_size;
  void* be_extension;
  int64_t be_count;
  void* be_types;
  const XlaBuffer* const* be_buffers;
};

struct XlaAttrs {
  size_t be_struct_size;
  void* be_extension;
  int64_t be_count;
};

struct XlaFrame {
  size_t be_struct_size;
  void* be_extension;
  const void* be_api;
  void* be_context;
  int be_stage;
  XlaItems be_args;
  XlaItems be_rets;
  XlaAttrs be_attrs;
};

/// What a Tensor calls the element types, by their number in `XLA_FFI_DataType`; `Invalid` for those that it can't hold.
constexpr DType kElementTypes[] = {
    DType::Invalid, DType::Bool,      DType::Int8,     DType::Int16,   DType::Int32,
    DType::Int64,   DType::UInt8,     DType::UInt16,   DType::UInt32,  DType::UInt64,
    DType::Float16, DType::Float32,   DType::Float64,  DType::Invalid, DType::Invalid,
    DType::Complex64, DType::BFloat16, DType::Invalid, DType::Complex128,
};
constexpr unsigned kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);

/// A bit for each element type that a Tensor can hold.
constexpr uint64_t be_known_element_types() noexcept {
  uint64_t be_known = 0;
  for (unsigned be_code = 0; be_code < kElementTypeCount; ++be_code)
    if (kElementTypes[be_code] != DType::Invalid) be_known |= uint64_t{1} << be_code;
  return be_known;
}

/// Whether a Tensor can be a view of a buffer. It reads nothing that isn't beside the elements' address.
inline bool be_holds(const XlaBuffer* be_buffer) noexcept {
  constexpr uint64_t kKnown = be_known_element_types();
  const unsigned be_code = static_cast<unsigned>(be_buffer->be_dtype);
  return __builtin_expect(be_code < 64 && (kKnown >> be_code & 1) != 0 && be_buffer->be_rank <= Tensor::kMaxDims, 1);
}

/// A Tensor over a buffer for which `be_holds` is true.
inline Tensor be_view(const XlaBuffer* be_buffer) noexcept {
  return Tensor(be_buffer->be_data, kElementTypes[be_buffer->be_dtype], static_cast<int>(be_buffer->be_rank),
                be_buffer->be_dims);
}

}  // namespace BE::detail

#pragma pack(pop)
