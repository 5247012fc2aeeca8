#pragma once

/// \file
/// The parts of XLA's call frame that a handler reads, and the buffers in it as tensors.
///
/// The structures equal `xla/ffi/api/c_api.h` up to the last member that is read; native/handler.cc compares
/// them. They are repeated here because an author's unit includes this file: `-Wpedantic` refuses XLA's header, which
/// also takes longer to compile. Names begin with `be_`, since the author's macros come before.

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

/// Return the DType of a number in `XLA_FFI_DataType`; `Invalid` for a type that a Tensor can't hold.
constexpr DType be_dtype_of(int be_code) noexcept {
  switch (be_code) {
#define BE_INTERNAL_OF_CODE(dtype, value, type, name, bits, xla, code, ...) \
  case code: return DType::dtype;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_OF_CODE, )
    default: return DType::Invalid;
  }
}

/// Return whether a Tensor can be a view of a buffer. It reads only members next to the elements' address.
inline bool be_holds(const XlaBuffer* be_buffer) noexcept {
  const bool be_known = be_dtype_of(be_buffer->be_dtype) != DType::Invalid;
  return __builtin_expect(be_known && be_buffer->be_rank <= Tensor::kMaxDims, 1);
}

/// Return a Tensor over a buffer for which `be_holds` is true.
inline Tensor be_view(const XlaBuffer* be_buffer) noexcept {
  return Tensor(be_buffer->be_data, be_dtype_of(be_buffer->be_dtype), static_cast<int>(be_buffer->be_rank),
                be_buffer->be_dims);
}

}  // namespace BE::detail

#pragma pack(pop)
