#pragma once

/// \file
/// `BE::Scalar`, the type of the parameter for `scalar.NAME:TYPE` in an arg_spec: a number that may change from call to
/// call without a new compilation. In a C++ source, the parameter may be a plain number instead, such as a `float`.

#include "brainevent/tensor.h"

namespace BE {

/// A number that a call passes. In a CUDA source, the number is in GPU memory.
///
/// A `BE::Scalar<T>` converts to `T`. In a CUDA source, only device code can convert the Scalar: pass the Scalar by
/// value to a `__global__` function. Host code would have to wait for the GPU.
template <class T>
class Scalar {
 public:
  /// Make a reference to a number in the memory of the device.
  BE_HD explicit Scalar(const T* number) noexcept : number_(number) {}

#if defined(__CUDACC__)
  __device__
#endif
  operator T() const noexcept {  // NOLINT: implicit on purpose
    return *number_;
  }

  /// Return the address of the number.
  BE_HD const T* data() const noexcept { return number_; }

 private:
  const T* number_;
};

namespace detail {

/// Converts to the `BE::Scalar<T>` that the entry point declares, or, in code for the CPU, to a number.
template <class T>
struct ScalarValue {
  const Tensor& be_tensor;

  operator Scalar<T>() const { return Scalar<T>(be_tensor.data_ptr<T>()); }  // NOLINT: implicit on purpose
#if defined(__CUDACC__)
  template <class Number, DType = internal::DTypeOf<Number>::value>
  operator Number() const {  // NOLINT: implicit on purpose
    static_assert(sizeof(Number) == 0, "a number of a GPU's call is in device memory: take a BE::Scalar<T>, and pass it "
                                       "to the kernel, which reads it");
    return {};
  }
#else
  operator T() const { return *be_tensor.data_ptr<T>(); }  // NOLINT: implicit on purpose
#endif
};

}  // namespace detail
}  // namespace BE
