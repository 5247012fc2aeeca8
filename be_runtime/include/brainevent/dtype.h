#pragma once

/// \file
/// Element types of tensors.

#include <stddef.h>
#include <stdint.h>

#include "brainevent/portability.h"

/// The element types, a row each, in the groups of brainevent/dispatch_macros.h:
///
/// `X(enumerator of DType, its value, C++ type, numpy's name, bytes, enumerator of XLA_FFI_DataType, its value, ...)`
///
/// with what follows `X` in place of the dots. All that is known of the types, here and in native/handler.cc, is made of
/// these rows; a test compares them with be_runtime/dtypes.py. Values below 31 are free for a new type, once.
#define BE_INTERNAL_BOOL_TYPES(X, ...) \
  X(Bool, 12, bool, bool, 1, PRED, 1, __VA_ARGS__)

#define BE_INTERNAL_HALF_TYPES(X, ...)                             \
  X(Float16, 0, ::BE::float16_t, float16, 2, F16, 10, __VA_ARGS__) \
  X(BFloat16, 3, ::BE::bfloat16_t, bfloat16, 2, BF16, 16, __VA_ARGS__)

#define BE_INTERNAL_FLOATING_TYPES(X, ...)               \
  X(Float32, 1, float, float32, 4, F32, 11, __VA_ARGS__) \
  X(Float64, 2, double, float64, 8, F64, 12, __VA_ARGS__)

#define BE_INTERNAL_INTEGRAL_TYPES(X, ...)                \
  X(Int8, 4, int8_t, int8, 1, S8, 2, __VA_ARGS__)         \
  X(Int16, 5, int16_t, int16, 2, S16, 3, __VA_ARGS__)     \
  X(Int32, 6, int32_t, int32, 4, S32, 4, __VA_ARGS__)     \
  X(Int64, 7, int64_t, int64, 8, S64, 5, __VA_ARGS__)     \
  X(UInt8, 8, uint8_t, uint8, 1, U8, 6, __VA_ARGS__)      \
  X(UInt16, 9, uint16_t, uint16, 2, U16, 7, __VA_ARGS__)  \
  X(UInt32, 10, uint32_t, uint32, 4, U32, 8, __VA_ARGS__) \
  X(UInt64, 11, uint64_t, uint64, 8, U64, 9, __VA_ARGS__)

#define BE_INTERNAL_COMPLEX_TYPES(X, ...)                                 \
  X(Complex64, 13, ::BE::complex64_t, complex64, 8, C64, 15, __VA_ARGS__) \
  X(Complex128, 14, ::BE::complex128_t, complex128, 16, C128, 18, __VA_ARGS__)

/// Every element type. The row of one that belongs to no group stands here.
#define BE_INTERNAL_ELEMENT_TYPES(X, ...)    \
  BE_INTERNAL_BOOL_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_HALF_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_FLOATING_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_INTEGRAL_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_COMPLEX_TYPES(X, __VA_ARGS__)

/// For the names of some rows as one text, which begins with a comma and a space.
#define BE_INTERNAL_LISTED(dtype, value, type, name, ...) ", " #name

namespace BE {

/// The element type of a tensor. The values are part of the binary interface.
enum class DType : uint8_t {
#define BE_INTERNAL_ENUMERATOR(dtype, value, ...) dtype = value,
  BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_ENUMERATOR, )
#undef BE_INTERNAL_ENUMERATOR
  Invalid = 255,
};

/// Bytes of one element; 0 for `Invalid` and for values outside the enumeration.
BE_HD constexpr size_t dtype_size(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_SIZE(dtype, value, type, name, bytes, ...) \
  case DType::dtype: return bytes;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_SIZE, )
#undef BE_INTERNAL_SIZE
    case DType::Invalid: break;
  }
  return 0;
}

/// The name numpy gives the type, `"invalid"` where there is none.
/// The text is static: it outlives every tensor.
BE_HD constexpr const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_NAME(dtype, value, type, name, ...) \
  case DType::dtype: return #name;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_NAME, )
#undef BE_INTERNAL_NAME
    case DType::Invalid: break;
  }
  return "invalid";
}

}  // namespace BE
