#pragma once

/// \file
/// Views of several values: the numbers of an attribute, and arrays if a call may pass any number of them.

#include "brainevent/tensor.h"

namespace BE {

namespace internal {

[[noreturn]] BE_COLD inline void throw_array_out_of_range(size_t index, size_t size) {
  Text text;
  text.append("array ").append(index);
  throw CheckError(text.append(" of ").append(size));
}

}  // namespace internal

/// A view of `size()` values in a row: the value of an attribute, as a `BE::Span<const T>`.
///
/// Ownership: none. XLA owns the values and keeps them as long as the program; they lie in the host's memory.
template <class T>
class Span {
 public:
  Span() noexcept = default;
  Span(T* data, size_t size) noexcept : data_(data), size_(size) {}

  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Return a value. The index is not checked, as with a pointer.
  T& operator[](size_t index) const noexcept { return data_[index]; }

  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

/// The arrays of a parameter that takes any number: `const BE::Tensors` are inputs, `BE::Tensors` are results.
///
/// Ownership: none. The Tensors are valid until the entry point returns; see `Tensor` for their elements.
class Tensors {
 public:
  Tensors() noexcept = default;
  Tensors(Tensor* data, size_t size) noexcept : data_(data), size_(size) {}

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Return an array. Throw `CheckError` if there is no such array.
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
