#pragma once

/// \file
/// The C++ type of each DType and the DType of each C++ type.

#include "brainevent/complex.h"
#include "brainevent/dtype.h"
#include "brainevent/float8.h"
#include "brainevent/half.h"
#include "brainevent/packed.h"

namespace BE {

namespace internal {

template <DType kDType>
struct CppType;

#define BE_INTERNAL_CPP_TYPE(dtype, value, cpp_type, ...) \
  template <>                                             \
  struct CppType<DType::dtype> {                          \
    using type = cpp_type;                                \
  };
BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_CPP_TYPE, )

}  // namespace internal

/// The DType whose elements are `T`s: `dtype_of<float> == DType::Float32`. Does not compile for other types.
template <class T>
constexpr DType dtype_of = internal::DTypeOf<T>::value;

/// The type of a DType's elements: `cpp_type<DType::Float32>` is `float`, and `cpp_type<DType::Int4>` is a byte with
/// two elements. Does not compile for `DType::Invalid`.
template <DType kDType>
using cpp_type = typename internal::CppType<kDType>::type;

}  // namespace BE
