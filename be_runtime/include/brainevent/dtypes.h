#pragma once

/// \file
/// The C++ type of each DType and the DType of each C++ type.

#include "brainevent/complex.h"
#include "brainevent/dtype.h"
#include "brainevent/element_types.h"
#include "brainevent/half.h"

namespace BE {

/// The DType whose elements are `T`s: `dtype_of<float> == DType::Float32`. Does not compile for other types.
template <class T>
constexpr DType dtype_of = internal::DTypeOf<T>::value;

/// The type of a DType's elements: `cpp_type<DType::Float32>` is `float`. Does not compile for `DType::Invalid`.
template <DType kDType>
using cpp_type = typename internal::CppType<kDType>::type;

}  // namespace BE
