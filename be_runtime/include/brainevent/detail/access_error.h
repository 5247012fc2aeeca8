#pragma once

/// \file
/// The errors of accesses through a tensor, for the one source of a program that defines them: native/handler.cc.
///
/// If every source could throw these errors itself, a small source would take nearly twice as long to compile.

#include "brainevent/detail/checked.h"
#include "brainevent/tensor.h"

namespace BE {

/// Exception for an access to a tensor's elements as another type, or outside of its shape.
///
/// `data()` and `dtype()` are properties of the tensor, by which the call's handler finds the argument or result.
class AccessError : public CheckError {
 public:
  AccessError(const internal::Text& message, const void* data, DType dtype) noexcept
      : CheckError(message), data_(data), dtype_(dtype) {}

  const void* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }

 private:
  const void* data_;
  DType dtype_;
};

namespace internal {

/// Append the `T` of a function as compilers spell it: `T* BE::Tensor::data_ptr() [with T = float]`.
inline void append_type(Text& text, const char* function) noexcept {
  const char* type = __builtin_strstr(function, "T = ");
  type = type != nullptr ? type + 4 : __builtin_strstr(function, "T=");  // as cudafe++ writes it
  if (type == nullptr) return;
  type += type[0] == 'T' && type[1] == '=' ? 2 : 0;
  const char* end = type;
  for (int open = 0; *end != '\0' && !(open == 0 && (*end == ';' || *end == ',' || *end == ']')); ++end)
    open += (*end == '<' || *end == '[' || *end == '(') - (*end == '>' || *end == ']' || *end == ')');
  text.append(type, static_cast<size_t>(end - type));
}

/// Append `>() of an int32 tensor`, and advice.
inline void append_elements(Text& text, DType dtype) noexcept {
  text.append(">() of a").append(dtype_name(dtype)[0] == 'i' ? "n " : " ").append(dtype);
  text.append(" tensor; ask for the type of its elements, or convert the array (data_ptr() without a type is a void*)");
}

}  // namespace internal
}  // namespace BE

/// `function` is `Tensor::data_ptr` as compilers spell it.
void be_throw_element_type(const char* function, const void* data, BE::DType dtype) {
  BE::internal::Text text;
  text.append("data_ptr<");
  BE::internal::append_type(text, function);
  BE::internal::append_elements(text, dtype);
  throw BE::AccessError(text, data, dtype);
}

void be_throw_access(const BE::internal::Access& access) {
  using BE::internal::Access;
  BE::internal::Text text = BE::internal::at_location(access.file, access.line);
  text.append(access.through_at ? "at<" : "data_ptr<");
  BE::internal::append_type(text, access.function);
  if (access.kind == Access::kOutside) {
    text.append(">(): index ").append(access.dimension).append(" is ").append(access.index);
    text.append(", and axis ").append(access.dimension).append(" has ").append(access.extent).append(" elements");
  } else if (access.kind == Access::kCount) {
    text.append(">() with ").append(access.index).append(" indices of a tensor with ").append(access.extent);
    text.append(" dimensions");
  } else {
    BE::internal::append_elements(text, access.dtype);
  }
  if (access.on_device) {
    text.append(" (block ");
    for (int i = 0; i < 3; ++i) text.append(access.block[i]).append(i < 2 ? ", " : "; thread ");
    for (int i = 0; i < 3; ++i) text.append(access.thread[i]).append(i < 2 ? ", " : ")");
  }
  throw BE::AccessError(text, access.data, access.dtype);
}
