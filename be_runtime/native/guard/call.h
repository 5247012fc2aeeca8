#pragma once

/// \file
/// A checked call: the text of its attribute `be_check`, its arrays, and its frame with other buffers.

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "../xla_call.h"
#include "brainevent/detail/xla_frame.h"

namespace be_guard {

constexpr char kAttribute[] = "be_check";

/// The bits of `be_runtime.checks.CHECKS`, in its order.
enum Checked : int64_t {
  kGuards = 1 << 0,
  kUnwritten = 1 << 1,
  kInputs = 1 << 2,
  kValues = 1 << 3,
  kBounds = 1 << 4,
  kFault = 1 << 5,
  kStream = 1 << 6,
  kRepeat = 1 << 7,
  kQuiet = 1 << 16,
};

/// The checks for which a kernel runs with copies of its arrays.
constexpr int64_t kNeedCopies = kGuards | kUnwritten | kInputs | kValues | kStream | kRepeat;

struct Check {
  std::string label;
  std::string caller;
  int64_t bits = 0;
  int64_t runs = 1;
  int64_t hidden = 0;  ///< number of last results that are scratch memory
  /// The axes of each argument and result from major to minor in memory; empty for their own order.
  std::vector<std::vector<int64_t>> orders;

  bool has(Checked which) const { return (bits & which) != 0; }
};

/// Parse the axes of each array, as `- 1,0`.
inline std::vector<std::vector<int64_t>> parse_orders(const std::string& line) {
  std::vector<std::vector<int64_t>> orders;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    orders.emplace_back();
    std::istringstream numbers(word == "-" ? "" : word);
    for (std::string axis; std::getline(numbers, axis, ',');)
      orders.back().push_back(strtoll(axis.c_str(), nullptr, 10));
  }
  return orders;
}

inline Check parse_check(const std::string& text) {
  std::string lines[6];
  std::istringstream in(text);
  for (std::string& line : lines) std::getline(in, line);
  const auto number = [](const std::string& digits) { return int64_t{strtoll(digits.c_str(), nullptr, 10)}; };
  return Check{lines[0], lines[1], number(lines[2]), number(lines[3]), number(lines[4]), parse_orders(lines[5])};
}

inline bool is_check(const XLA_FFI_ByteSpan& name) {
  return name.len == sizeof(kAttribute) - 1 && memcmp(name.ptr, kAttribute, name.len) == 0;
}

/// Find the text of a call's attribute; null if it has none.
inline const XLA_FFI_ByteSpan* find_check(const XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  for (int64_t i = 0; i < attrs.size; ++i)
    if (is_check(*attrs.names[i]) && attrs.types[i] == XLA_FFI_AttrType_STRING)
      return static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]);
  return nullptr;
}

/// Format numbers as `[4, 3]`.
inline std::string spell(const int64_t* numbers, int64_t count) {
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}
inline std::string spell(const std::vector<int64_t>& index) {
  return spell(index.data(), static_cast<int64_t>(index.size()));
}

struct Array {
  const XLA_FFI_Buffer* buffer;
  bool is_result;
  bool is_hidden;  ///< scratch memory
  int64_t number;  ///< among the arguments, the shown results, or the scratch memories
  BE::DType dtype;
  int64_t elements;
  size_t bits;   ///< of one element; 8 where the type is not known
  size_t bytes;  ///< of all elements
  std::vector<int64_t>
      order{};  ///< the axes from major to minor in memory, without axes of a batch; empty: their own order

  std::string name() const {
    return (is_hidden ? "scratch " : is_result ? "result " : "argument ") + std::to_string(number);
  }

  /// Return the name with type and shape, as `result 0 (float32[4, 3])`.
  std::string described() const {
    return name() + " (" + BE::dtype_name(dtype) + spell(buffer->dims, buffer->rank) + ")";
  }

  /// Return the index of an element, along all axes, from its number in memory.
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

/// Describe all arrays of a call except tokens, arguments before results.
inline std::vector<Array> arrays_of(const XLA_FFI_CallFrame* frame, const Check& check) {
  std::vector<Array> arrays;
  const int64_t tokens = be_xla::is_ordered(frame) ? 1 : 0;
  const int64_t args = frame->args.size - tokens, shown = frame->rets.size - tokens - check.hidden;
  for (int64_t i = 0; i < args + shown + check.hidden; ++i) {
    const bool is_result = i >= args, is_hidden = i >= args + shown;
    const XLA_FFI_Buffer* buffer = be_xla::buffer_at(frame, is_result ? i + tokens : i);
    const BE::DType dtype = BE::detail::be_dtype_of(static_cast<int32_t>(buffer->dtype));
    const size_t bits = BE::dtype_bits(dtype) != 0 ? BE::dtype_bits(dtype) : 8;
    const int64_t elements = be_xla::element_count(buffer->dims, buffer->rank);
    arrays.push_back({buffer, is_result, is_hidden, i - (is_hidden ? args + shown : is_result ? args : 0), dtype,
                      elements, bits, (static_cast<size_t>(elements) * bits + 7) / 8});
  }
  for (size_t i = 0; i < arrays.size() && i < check.orders.size(); ++i) arrays[i].order = check.orders[i];
  return arrays;
}

/// A call's frame with other buffers, and without the attribute `be_check`.
class OwnFrame {
 public:
  OwnFrame(const XLA_FFI_CallFrame* frame, const std::vector<Array>& arrays) : frame_(*frame) {
    for (int64_t i = 0; i < frame->attrs.size; ++i) {
      if (is_check(*frame->attrs.names[i])) continue;
      names_.push_back(frame->attrs.names[i]);
      types_.push_back(frame->attrs.types[i]);
      values_.push_back(frame->attrs.attrs[i]);
    }
    frame_.attrs.size = static_cast<int64_t>(names_.size());
    frame_.attrs.names = names_.data();
    frame_.attrs.types = types_.data();
    frame_.attrs.attrs = values_.data();
    args_.assign(frame->args.args, frame->args.args + frame->args.size);
    rets_.assign(frame->rets.rets, frame->rets.rets + frame->rets.size);
    for (const Array& array : arrays) buffers_.push_back(*array.buffer);
    size_t arg = 0, ret = 0;
    for (size_t i = 0; i < arrays.size(); ++i)
      (arrays[i].is_result ? rets_[ret++] : args_[arg++]) = &buffers_[i];
    frame_.args.args = args_.data();
    frame_.rets.rets = rets_.data();
  }
  OwnFrame& operator=(OwnFrame&&) = delete;

  void point(size_t array, void* data) { buffers_[array].data = data; }
  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  XLA_FFI_CallFrame frame_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> values_, args_, rets_;
  std::vector<XLA_FFI_Buffer> buffers_;
};

}  // namespace be_guard
