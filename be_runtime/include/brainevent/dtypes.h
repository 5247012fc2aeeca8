#pragma once

/// \file
/// The C++ type of each DType and the DType of each C++ type.

#include <stdint.h>

#include "brainevent/complex.h"
#include "brainevent/dtype.h"
#include "brainevent/half.h"

namespace BE {

namespace internal {

template <class T>
struct DTypeOf;

template <DType kDType>
struct CppType;

template <DType kDType>
struct KnownDType {
  static constexpr DType value = kDType;
};

#define BE_INTERNAL_PAIR(dtype, ...)                         \
  template <>                                                \
  struct DTypeOf<__VA_ARGS__> : KnownDType<DType::dtype> {}; \
  template <>                                                \
  struct CppType<DType::dtype> {                             \
    using type = __VA_ARGS__;                                \
  };

BE_INTERNAL_PAIR(Float16, float16_t)
BE_INTERNAL_PAIR(Float32, float)
BE_INTERNAL_PAIR(Float64, double)
BE_INTERNAL_PAIR(BFloat16, bfloat16_t)
BE_INTERNAL_PAIR(Int8, int8_t)
BE_INTERNAL_PAIR(Int16, int16_t)
BE_INTERNAL_PAIR(Int32, int32_t)
BE_INTERNAL_PAIR(Int64, int64_t)
BE_INTERNAL_PAIR(UInt8, uint8_t)
BE_INTERNAL_PAIR(UInt16, uint16_t)
BE_INTERNAL_PAIR(UInt32, uint32_t)
BE_INTERNAL_PAIR(UInt64, uint64_t)
BE_INTERNAL_PAIR(Bool, bool)
BE_INTERNAL_PAIR(Complex64, complex64_t)
BE_INTERNAL_PAIR(Complex128, complex128_t)

#undef BE_INTERNAL_PAIR

/// Of `long` and `long long` one is int64_t. This is the other, where it is as wide.
template <class T>
struct OtherInt64;
template <>
struct OtherInt64<long> {
  using type = long long;
  using unsigned_type = unsigned long long;
};
template <>
struct OtherInt64<long long> {
  using type = long;
  using unsigned_type = unsigned long;
};

template <>
struct DTypeOf<OtherInt64<int64_t>::type> : KnownDType<sizeof(long) == 8 ? DType::Int64 : DType::Int32> {};
template <>
struct DTypeOf<OtherInt64<int64_t>::unsigned_type> : KnownDType<sizeof(long) == 8 ? DType::UInt64 : DType::UInt32> {};

template <class T>
struct DTypeOf<const T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<volatile T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<const volatile T> : DTypeOf<T> {};

}  // namespace internal

/// The DType whose elements are `T`s: `dtype_of<float> == DType::Float32`. Does not compile for other types.
template <class T>
constexpr DType dtype_of = internal::DTypeOf<T>::value;

/// The type of a DType's elements: `cpp_type<DType::Float32>` is `float`. Does not compile for `DType::Invalid`.
template <DType kDType>
using cpp_type = typename internal::CppType<kDType>::type;

}  // namespace BE
