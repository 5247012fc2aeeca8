/// \file
/// What a call's attributes say.

#pragma once

#include "../xla_call.h"
#include "kernels.h"

namespace be_launch {

using be_xla::fail;

/// One parameter of a kernel, as the attribute `params` spells it.
struct Param {
  enum Kind : int64_t { kPointer = 0, kArray = 1, kScalar = 2 };
  int64_t kind;
  int64_t first;   ///< The buffer's number, arguments before results; a scalar's bits.
  int64_t second;  ///< The buffer's dimensions as the kernel sees them; unused for a scalar.
  int64_t third;   ///< Bits of one element.
};

struct Geometry {
  int64_t grid[3];
  int64_t block[3];
  int64_t shared_bytes;
  int64_t cluster[3];
  int64_t is_cooperative;
  int64_t batch_axis;  ///< 1 or 2, the axis of the grid that a batch may use; 0 when it may use none.

  bool is_plain() const { return cluster[0] * cluster[1] * cluster[2] <= 1 && !is_cooperative; }
};

struct Call {
  const char* id;
  const XLA_FFI_ByteSpan* name;
  const Geometry* geometry;
  const Param* params;
  int64_t param_count;
};

inline const XLA_FFI_ByteSpan* string_attr(const XLA_FFI_Attrs& attrs, int index) {
  return attrs.types[index] == XLA_FFI_AttrType_STRING ? static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[index])
                                                       : nullptr;
}

inline const XLA_FFI_Array* int_array_attr(const XLA_FFI_Attrs& attrs, int index) {
  const XLA_FFI_Array* array = static_cast<const XLA_FFI_Array*>(attrs.attrs[index]);
  return attrs.types[index] == XLA_FFI_AttrType_ARRAY && array->dtype == XLA_FFI_DataType_S64 ? array : nullptr;
}

/// Reads the attributes, which are sorted by name; false when they are not those of a launch.
inline bool read_call(const XLA_FFI_CallFrame* frame, Call* call) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  if (attrs.size != 4) return false;
  const XLA_FFI_ByteSpan* id = string_attr(attrs, 0);
  const XLA_FFI_Array* launch = int_array_attr(attrs, 1);
  call->name = string_attr(attrs, 2);
  const XLA_FFI_Array* params = int_array_attr(attrs, 3);
  if (id == nullptr || launch == nullptr || call->name == nullptr || params == nullptr) return false;
  if (id->len != kIdSize || launch->size != sizeof(Geometry) / 8 || params->size % 4 != 0) return false;
  call->id = id->ptr;
  call->geometry = static_cast<const Geometry*>(launch->data);
  call->params = static_cast<const Param*>(params->data);
  call->param_count = static_cast<int64_t>(params->size / 4);
  return true;
}

inline XLA_FFI_Error* fail_attrs(const XLA_FFI_CallFrame* frame) {
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
              "be_runtime.launch: the attributes are not those of a launch; call it through cuda_kernel or "
              "numba_cuda_kernel");
}

inline XLA_FFI_Error* fail_slices(const XLA_FFI_CallFrame* frame, const Call& call, int64_t elements, int64_t bits) {
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
              "%.*s: a batch has slices of %lld elements of %lld bits, which don't begin at whole bytes; pass "
              "vmap_method='sequential', or arrays of larger elements",
              static_cast<int>(call.name->len), call.name->ptr, static_cast<long long>(elements),
              static_cast<long long>(bits));
}

inline XLA_FFI_Error* fail_unknown(const XLA_FFI_CallFrame* frame, const Call& call) {
  return fail(frame, XLA_FFI_Error_Code_NOT_FOUND,
              "%.*s: this process has not made the kernel (content %.*s); make it, by the same cuda_kernel or "
              "numba_cuda_kernel call, before a program that was compiled elsewhere runs",
              static_cast<int>(call.name->len), call.name->ptr, static_cast<int>(kIdSize), call.id);
}

}  // namespace be_launch
