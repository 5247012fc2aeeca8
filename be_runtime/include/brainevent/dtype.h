#pragma once

/// \file
/// Element types of tensors.

#include <stddef.h>
#include <stdint.h>

#include "brainevent/portability.h"

/// The element types, a row each, in the groups of brainevent/dispatch_macros.h:
///
/// `X(enumerator of DType, its value, C++ type, numpy's name, bits, enumerator of XLA_FFI_DataType, its value, ...)`
///
/// with what follows `X` in place of the dots. Where several elements share a byte, the C++ type is that byte. All that
/// is known of the types, here and in native/handler.cc, is made of these rows; a test compares them with
/// be_runtime/dtypes.py. Values below 31 are free for a new type, once.
#define BE_INTERNAL_BOOL_TYPES(X, ...) \
  X(Bool, 12, bool, bool, 8, PRED, 1, __VA_ARGS__)

#define BE_INTERNAL_HALF_TYPES(X, ...)                              \
  X(Float16, 0, ::BE::float16_t, float16, 16, F16, 10, __VA_ARGS__) \
  X(BFloat16, 3, ::BE::bfloat16_t, bfloat16, 16, BF16, 16, __VA_ARGS__)

#define BE_INTERNAL_FLOATING_TYPES(X, ...)                \
  X(Float32, 1, float, float32, 32, F32, 11, __VA_ARGS__) \
  X(Float64, 2, double, float64, 64, F64, 12, __VA_ARGS__)

#define BE_INTERNAL_INDEX_TYPES(X, ...)                \
  X(Int32, 6, int32_t, int32, 32, S32, 4, __VA_ARGS__) \
  X(Int64, 7, int64_t, int64, 64, S64, 5, __VA_ARGS__)

#define BE_INTERNAL_INTEGRAL_TYPES(X, ...)                 \
  X(Int8, 4, int8_t, int8, 8, S8, 2, __VA_ARGS__)          \
  X(Int16, 5, int16_t, int16, 16, S16, 3, __VA_ARGS__)     \
  BE_INTERNAL_INDEX_TYPES(X, __VA_ARGS__)                  \
  X(UInt8, 8, uint8_t, uint8, 8, U8, 6, __VA_ARGS__)       \
  X(UInt16, 9, uint16_t, uint16, 16, U16, 7, __VA_ARGS__)  \
  X(UInt32, 10, uint32_t, uint32, 32, U32, 8, __VA_ARGS__) \
  X(UInt64, 11, uint64_t, uint64, 64, U64, 9, __VA_ARGS__)

#define BE_INTERNAL_COMPLEX_TYPES(X, ...)                                  \
  X(Complex64, 13, ::BE::complex64_t, complex64, 64, C64, 15, __VA_ARGS__) \
  X(Complex128, 14, ::BE::complex128_t, complex128, 128, C128, 18, __VA_ARGS__)

#define BE_INTERNAL_FLOAT8_TYPES(X, ...)                                                                      \
  X(Float8E5M2, 15, ::BE::float8_e5m2_t, float8_e5m2, 8, F8E5M2, 19, __VA_ARGS__)                             \
  X(Float8E4M3FN, 16, ::BE::float8_e4m3fn_t, float8_e4m3fn, 8, F8E4M3FN, 20, __VA_ARGS__)                     \
  X(Float8E4M3B11FNUZ, 17, ::BE::float8_e4m3b11fnuz_t, float8_e4m3b11fnuz, 8, F8E4M3B11FNUZ, 23, __VA_ARGS__) \
  X(Float8E5M2FNUZ, 18, ::BE::float8_e5m2fnuz_t, float8_e5m2fnuz, 8, F8E5M2FNUZ, 24, __VA_ARGS__)             \
  X(Float8E4M3FNUZ, 19, ::BE::float8_e4m3fnuz_t, float8_e4m3fnuz, 8, F8E4M3FNUZ, 25, __VA_ARGS__)             \
  X(Float8E4M3, 20, ::BE::float8_e4m3_t, float8_e4m3, 8, F8E4M3, 28, __VA_ARGS__)                             \
  X(Float8E3M4, 21, ::BE::float8_e3m4_t, float8_e3m4, 8, F8E3M4, 29, __VA_ARGS__)                             \
  X(Float8E8M0FNU, 22, ::BE::float8_e8m0fnu_t, float8_e8m0fnu, 8, F8E8M0FNU, 33, __VA_ARGS__)

#define BE_INTERNAL_PACKED_TYPES(X, ...)                       \
  X(Int2, 23, ::BE::int2x4_t, int2, 2, S2, 26, __VA_ARGS__)    \
  X(UInt2, 24, ::BE::uint2x4_t, uint2, 2, U2, 27, __VA_ARGS__) \
  X(Int4, 25, ::BE::int4x2_t, int4, 4, S4, 21, __VA_ARGS__)    \
  X(UInt4, 26, ::BE::uint4x2_t, uint4, 4, U4, 22, __VA_ARGS__) \
  X(Float4E2M1FN, 27, ::BE::float4_e2m1fnx2_t, float4_e2m1fn, 4, F4E2M1FN, 32, __VA_ARGS__)

/// The types that an attribute may have as well.
#define BE_INTERNAL_SCALAR_TYPES(X, ...)     \
  BE_INTERNAL_BOOL_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_HALF_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_FLOATING_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_INTEGRAL_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_COMPLEX_TYPES(X, __VA_ARGS__)

/// Every element type. The row of one that belongs to no group stands here.
#define BE_INTERNAL_ELEMENT_TYPES(X, ...)  \
  BE_INTERNAL_SCALAR_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_FLOAT8_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_PACKED_TYPES(X, __VA_ARGS__)

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

/// Bits of one element; 0 for `Invalid` and for values outside the enumeration.
BE_HD constexpr size_t dtype_bits(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_BITS(dtype, value, type, name, bits, ...) \
  case DType::dtype: return bits;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_BITS, )
#undef BE_INTERNAL_BITS
    case DType::Invalid: break;
  }
  return 0;
}

/// Bytes of one element; 0 where several share a byte, and where `dtype_bits` is 0.
BE_HD constexpr size_t dtype_size(DType dtype) noexcept {
  return dtype_bits(dtype) / 8;
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
