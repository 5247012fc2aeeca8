#pragma once

/// \file
/// `BE::Span`, the numbers of an attribute, and `BE::Tensors`, the arrays of a parameter that takes any number of
/// arrays.

#include "brainevent/tensor.h"

namespace BE {

namespace internal {

[[noreturn]] BE_COLD inline void throw_array_out_of_range(size_t index, size_t size) {
  Text text;
  text.append("array ").append(index);
  throw CheckError(text.append(" of ").append(size));
}

}  // namespace internal

/// A view of consecutive values. An attribute with several numbers is a `BE::Span<const T>`.
///
/// **Ownership.** XLA owns the numbers of an attribute. The numbers are in host memory. The numbers are valid until the
/// entry point returns or, in the constructor of a state, until the constructor returns.
template <class T>
class Span {
 public:
  Span() noexcept = default;
  Span(T* data, size_t size) noexcept : data_(data), size_(size) {}

  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Return the value at `index`. The index is not checked.
  T& operator[](size_t index) const noexcept { return data_[index]; }

  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

/// The arrays of a parameter that takes any number of arrays. Declare `const BE::Tensors` for inputs, and `BE::Tensors`
/// for results.
///
/// **Ownership.** The Tensors are valid until the entry point returns.
class Tensors {
 public:
  Tensors() noexcept = default;
  Tensors(Tensor* data, size_t size) noexcept : data_(data), size_(size) {}

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Return the array at `index`. Throw `CheckError` if the index is not less than `size()`.
  Tensor& operator[](size_t index) { return data_[checked(index)]; }
  const Tensor& operator[](size_t index) const { return data_[checked(index)]; }

  Tensor* begin() noexcept { return data_; }
  Tensor* end() noexcept { return data_ + size_; }
  const Tensor* begin() const noexcept { return data_; }
  const Tensor* end() const noexcept { return data_ + size_; }

 private:
  size_t checked(size_t index) const {
    if (index >= size_) internal::throw_array_out_of_range(index, size_);
    return index;
  }

  Tensor* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace BE
