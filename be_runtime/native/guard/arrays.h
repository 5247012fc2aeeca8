#pragma once

/// \file
/// The arrays of a call, as messages name them.

#include <cstdint>
#include <string>
#include <vector>

#include "../xla_call.h"
#include "brainevent/detail/xla_frame.h"
#include "brainevent/dtype.h"
#include "check.h"

namespace be_guard {

struct Array {
  const XLA_FFI_Buffer* buffer;
  bool is_result;
  bool is_hidden;  ///< scratch memory
  int64_t number;  ///< among the arguments, the shown results, or the scratch memories
  BE::DType dtype;
  int64_t elements;
  size_t bits;   ///< of one element; 8 where the type is not known
  size_t bytes;  ///< of all elements
  std::vector<int64_t> order{};  ///< the axes from major to minor in memory, but for those of a batch; empty: their own

  std::string name() const {
    return (is_hidden ? "scratch " : is_result ? "result " : "argument ") + std::to_string(number);
  }

  /// The name with type and shape, as `result 0 (float32[4, 3])`.
  std::string described() const {
    std::string text = name() + " (" + BE::dtype_name(dtype) + "[";
    for (int64_t i = 0; i < buffer->rank; ++i) text += (i ? ", " : "") + std::to_string(buffer->dims[i]);
    return text + "])";
  }

  /// The index of an element by its number in memory, along all axes.
  std::vector<int64_t> index_of(int64_t element) const {
    std::vector<int64_t> index(static_cast<size_t>(buffer->rank));
    const int64_t own = static_cast<int64_t>(order.size()), batch = buffer->rank - own;
    for (int64_t i = buffer->rank; i-- > 0;) {
      const int64_t axis = i >= batch && batch >= 0 ? batch + order[static_cast<size_t>(i - batch)] : i;
      index[static_cast<size_t>(axis)] = element % buffer->dims[axis];
      element /= buffer->dims[axis];
    }
    return index;
  }
};

inline std::string spell(const std::vector<int64_t>& index) {
  std::string text = "[";
  for (size_t i = 0; i < index.size(); ++i) text += (i ? ", " : "") + std::to_string(index[i]);
  return text + "]";
}

inline Array describe(const XLA_FFI_Buffer* buffer, bool is_result, bool is_hidden, int64_t number) {
  const BE::DType dtype = BE::detail::be_dtype_of(static_cast<int32_t>(buffer->dtype));
  const size_t bits = BE::dtype_bits(dtype) != 0 ? BE::dtype_bits(dtype) : 8;
  int64_t elements = 1;
  for (int64_t i = 0; i < buffer->rank; ++i) elements *= buffer->dims[i];
  return {buffer, is_result, is_hidden, number, dtype, elements, bits, (static_cast<size_t>(elements) * bits + 7) / 8};
}

/// All arrays of a call but tokens, arguments before results.
inline std::vector<Array> arrays_of(const XLA_FFI_CallFrame* frame, const Check& check) {
  std::vector<Array> arrays;
  const int64_t tokens = be_xla::is_ordered(frame) ? 1 : 0;
  const int64_t args = frame->args.size - tokens, rets = frame->rets.size - tokens;
  for (int64_t i = 0; i < args; ++i)
    arrays.push_back(describe(static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]), false, false, i));
  for (int64_t i = 0; i < rets; ++i) {
    const int64_t shown = rets - check.hidden;
    arrays.push_back(describe(static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[i]), true, i >= shown,
                              i >= shown ? i - shown : i));
  }
  for (size_t i = 0; i < arrays.size() && i < check.orders.size(); ++i) arrays[i].order = check.orders[i];
  return arrays;
}

}  // namespace be_guard
