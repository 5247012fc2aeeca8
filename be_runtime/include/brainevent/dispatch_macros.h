#pragma once

/// \file
/// Macros that compile a body for each of several element types, and run the body for the dtype of an array.
///
///     BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
///       scale<scalar_t><<<blocks, threads, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
///     });
///
/// The body is part of a lambda that captures by reference and that the macro calls. `return value;` leaves only the
/// body, and the macro returns the value. A body may contain a second dispatch. If the macro has no type for the dtype,
/// the macro throws `BE::CheckError` with the name of the macro, the dtype and the allowed dtypes.
///
/// For 16-bit floats, 8-bit floats, complex types and packed elements, also include `brainevent/dispatch.h`, which
/// defines these types.
///
/// | macro | types |
/// |---|---|
/// | `BE_DISPATCH_FLOATING` | float, double |
/// | `BE_DISPATCH_FLOATING_AND_HALF` | float, double, `float16_t`, `bfloat16_t` |
/// | `BE_DISPATCH_INTEGRAL` | `int8_t` to `int64_t`, `uint8_t` to `uint64_t`, bool |
/// | `BE_DISPATCH_ALL_TYPES` | the types of `BE_DISPATCH_FLOATING` and `BE_DISPATCH_INTEGRAL` |
/// | `BE_DISPATCH_COMPLEX` | `complex64_t`, `complex128_t` |
/// | `BE_DISPATCH_ALL` | the types of `BE_DISPATCH_FLOATING_AND_HALF`, `BE_DISPATCH_INTEGRAL` and `BE_DISPATCH_COMPLEX` |
/// | `BE_DISPATCH_FLOAT8` | `float8_e5m2_t` to `float8_e8m0fnu_t`, the eight 8-bit floats |
/// | `BE_DISPATCH_PACKED` | bytes of packed elements: `int2x4_t`, `uint2x4_t`, `int4x2_t`, `uint4x2_t`, `float4_e2m1fnx2_t` |
/// | `BE_DISPATCH_SIGNED_INDEX`, `BE_DISPATCH_CSR_INDPTR` | `int32_t`, `int64_t` |
/// | `BE_DISPATCH_SIGNED_INDEX_PAIR` | `int32_t` or `int64_t` for each of two dtypes; the arguments are two dtypes, two names, the body |

#include "brainevent/check.h"

namespace BE::internal {

[[noreturn]] BE_COLD inline void throw_unsupported_dtype(const char* macro, const char* allowed, DType dtype,
                                                         const char* expression, const char* file, int line) {
  Text text = at_location(file, line);
  text.append(macro).append(" does not support dtype ").append(dtype).append(" of ").append(expression);
  throw CheckError(text.append("; supported are ").append(allowed));
}

}  // namespace BE::internal

#define BE_DISPATCH_FLOATING(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(FLOATING, FLOATING, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_FLOATING_AND_HALF(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(FLOATING_AND_HALF, FLOATING_AND_HALF, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_INTEGRAL(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(INTEGRAL, INTEGRAL_AND_BOOL, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_ALL_TYPES(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(ALL_TYPES, FLOATING_AND_INTEGRAL, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_COMPLEX(DTYPE, NAME, ...) BE_INTERNAL_DISPATCH(COMPLEX, COMPLEX, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_ALL(DTYPE, NAME, ...) BE_INTERNAL_DISPATCH(ALL, SCALAR, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_FLOAT8(DTYPE, NAME, ...) BE_INTERNAL_DISPATCH(FLOAT8, FLOAT8, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_PACKED(DTYPE, NAME, ...) BE_INTERNAL_DISPATCH(PACKED, PACKED, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_SIGNED_INDEX(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(SIGNED_INDEX, INDEX, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_CSR_INDPTR(DTYPE, NAME, ...) \
  BE_INTERNAL_DISPATCH(CSR_INDPTR, INDEX, DTYPE, #DTYPE, NAME, __VA_ARGS__)
#define BE_DISPATCH_SIGNED_INDEX_PAIR(DTYPE_A, DTYPE_B, NAME_A, NAME_B, ...) \
  BE_INTERNAL_DISPATCH(SIGNED_INDEX_PAIR, INDEX, DTYPE_A, #DTYPE_A, NAME_A,  \
                       return BE_INTERNAL_DISPATCH(SIGNED_INDEX_PAIR, INDEX, DTYPE_B, #DTYPE_B, NAME_B, __VA_ARGS__);)

/// `BE_CHECK_CSR_INDICES_INT32(indices);` throws `BE::CheckError` unless the dtype of `indices` is int32.
#define BE_CHECK_CSR_INDICES_INT32(INDICES)         \
  BE_CHECK((INDICES).dtype() == ::BE::DType::Int32) \
      << "CSR indices must be int32, but " #INDICES " is " << (INDICES).dtype()

#define BE_INTERNAL_FLOATING_AND_HALF_TYPES(X, ...) \
  BE_INTERNAL_HALF_TYPES(X, __VA_ARGS__)            \
  BE_INTERNAL_FLOATING_TYPES(X, __VA_ARGS__)

#define BE_INTERNAL_INTEGRAL_AND_BOOL_TYPES(X, ...) \
  BE_INTERNAL_INTEGRAL_TYPES(X, __VA_ARGS__)        \
  BE_INTERNAL_BOOL_TYPES(X, __VA_ARGS__)

#define BE_INTERNAL_FLOATING_AND_INTEGRAL_TYPES(X, ...) \
  BE_INTERNAL_FLOATING_TYPES(X, __VA_ARGS__)            \
  BE_INTERNAL_INTEGRAL_AND_BOOL_TYPES(X, __VA_ARGS__)

// The parameter is named after the alias, so that nested uses do not shadow each other's.
#define BE_INTERNAL_DISPATCH(MACRO, GROUP, DTYPE, EXPRESSION, NAME, ...)                                          \
  [&](const ::BE::DType be_internal_dtype_of_##NAME) {                                                            \
    switch (be_internal_dtype_of_##NAME) {                                                                        \
      BE_INTERNAL_##GROUP##_TYPES(BE_INTERNAL_CASE, NAME, __VA_ARGS__) default                                    \
          : ::BE::internal::throw_unsupported_dtype("BE_DISPATCH_" #MACRO,                                        \
                                                    &(BE_INTERNAL_##GROUP##_TYPES(BE_INTERNAL_LISTED, ))[2],      \
                                                    be_internal_dtype_of_##NAME, EXPRESSION, __FILE__, __LINE__); \
    }                                                                                                             \
  }(DTYPE)

#define BE_INTERNAL_CASE(DTYPE, VALUE, TYPE, NUMPY, BITS, XLA, CODE, NAME, ...) \
  case ::BE::DType::DTYPE: {                                                    \
    using NAME [[maybe_unused]] = TYPE;                                         \
    __VA_ARGS__                                                                 \
    break;                                                                      \
  }
