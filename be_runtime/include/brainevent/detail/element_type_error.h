#pragma once

/// \file
/// The error of `Tensor::data_ptr<T>()`, for the one source of a program that defines it: native/handler.cc.
///
/// An error that every source could throw by itself would nearly double the time that a small one takes to compile.

#include "brainevent/tensor.h"

namespace BE {

/// A tensor's elements were asked for as another type than theirs.
///
/// `data()` and `dtype()` are the tensor's, by which the call's handler finds the argument or result.
class ElementTypeError : public CheckError {
 public:
  ElementTypeError(const internal::Text& message, const void* data, DType dtype) noexcept
      : CheckError(message), data_(data), dtype_(dtype) {}

  const void* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }

 private:
  const void* data_;
  DType dtype_;
};

}  // namespace BE

/// `function` is `Tensor::data_ptr` as compilers spell it: `T* BE::Tensor::data_ptr() [with T = float]`.
void be_throw_element_type(const char* function, const void* data, BE::DType dtype) {
  const char* type = __builtin_strstr(function, "T = ") + 4;
  const char* end = __builtin_strchr(type, ';');
  if (end == nullptr) end = __builtin_strrchr(type, ']');
  BE::internal::Text text;
  text.append("data_ptr<").append(type, static_cast<size_t>(end - type)).append(">() of a ");
  text.append(dtype).append(" tensor; ask for the type of its elements, or convert what data_ptr() gives without a type");
  throw BE::ElementTypeError(text, data, dtype);
}
