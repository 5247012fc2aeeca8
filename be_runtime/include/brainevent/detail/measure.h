#pragma once

/// \file
/// Calls of functions that compute the size of a result or of scratch memory, from the shapes and attributes of a call.

#include <stdio.h>

#include <exception>

#include "brainevent/detail/attr_values.h"

namespace BE::detail {

/// Return the DType of an `XLA_FFI_DataType`.
constexpr DType be_dtype_of_code(int64_t code) noexcept {
  switch (code) {
#define BE_INTERNAL_CODE_OF(dtype, value, type, name, bits, xla, number, ...) \
  case number: return DType::dtype;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_CODE_OF, )
  }
  return DType::Invalid;
}

/// Call a function with tensors without elements. Return the text of its exception, or null if it throws none.
///
/// `words` has the number of parameters that take arrays and the number of arrays; for each parameter its number of
/// arrays, -1 for an absent one, and -2 - n for any number; and for each array its type, dimensions and extents.
template <class BeFunction>
const char* be_measure(const int64_t* be_words, const void* const* be_attrs, int64_t* be_result,
                       BeFunction be_function) noexcept {
  static thread_local char be_text[1000];
  try {
    const int64_t be_params = be_words[0], be_arrays = be_words[1];
    Tensor* be_tensors = static_cast<Tensor*>(__builtin_alloca((static_cast<size_t>(be_arrays) + 1) * sizeof(Tensor)));
    Tensor** be_slots = static_cast<Tensor**>(__builtin_alloca((static_cast<size_t>(be_params) + 1) * sizeof(Tensor*)));
    Tensors be_many[2];
    Tensor* be_next = be_tensors;
    be_words += 2;
    for (int64_t be_param = 0; be_param < be_params; ++be_param) {
      int64_t be_count = *be_words++;
      be_slots[be_param] = be_count == -1 ? nullptr : be_next;
      if (be_count < -1) be_many[0] = Tensors(be_next, static_cast<size_t>(be_count = -2 - be_count));
      for (; be_count > 0; --be_count, ++be_next) {
        *be_next = Tensor(nullptr, be_dtype_of_code(be_words[0]), static_cast<int>(be_words[1]), be_words + 2);
        be_words += 2 + be_words[1];
      }
    }
    *be_result = be_function(GeneralCall{{be_tensors, nullptr, be_attrs, nullptr, nullptr}, nullptr, be_slots, be_many});
    return nullptr;
  } catch (const std::exception& be_error) {
    snprintf(be_text, sizeof(be_text), "%s", be_error.what());
  } catch (...) {
    snprintf(be_text, sizeof(be_text), "it throws an object that is not a std::exception");
  }
  return be_text;
}

}  // namespace BE::detail
