#pragma once

/// \file
/// `BE::dtype_of` and `BE::cpp_type`: the DType of a C++ type, and the C++ type of a DType.

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

/// The DType of arrays whose elements have type `T`: `dtype_of<float>` is `DType::Float32`. If `T` has no DType,
/// `dtype_of<T>` is a compile error.
template <class T>
constexpr DType dtype_of = internal::DTypeOf<T>::value;

/// The C++ type of the elements of a DType: `cpp_type<DType::Float32>` is `float`, and `cpp_type<DType::Int4>` is
/// `int4x2_t`, a byte of two elements. `cpp_type<DType::Invalid>` is a compile error.
template <DType kDType>
using cpp_type = typename internal::CppType<kDType>::type;

}  // namespace BE
