#pragma once

/// \file
/// What a checked call says in its attribute `be_check`: six lines, see `be_runtime.checks.call_text`.

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "../xla_call.h"

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
  int64_t hidden = 0;  ///< how many of the last results are scratch memory
  /// For arguments and results their axes from major to minor in memory; empty for their own order.
  std::vector<std::vector<int64_t>> orders;

  bool has(Checked which) const { return (bits & which) != 0; }
};

/// Reads the axes of each array, as `- 1,0`.
inline std::vector<std::vector<int64_t>> parse_orders(const std::string& line) {
  std::vector<std::vector<int64_t>> orders;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    orders.emplace_back();
    std::istringstream numbers(word == "-" ? "" : word);
    for (std::string axis; std::getline(numbers, axis, ',');) orders.back().push_back(strtoll(axis.c_str(), nullptr, 10));
  }
  return orders;
}

inline Check parse_check(const std::string& text) {
  std::string lines[6];
  size_t begin = 0;
  for (std::string& line : lines) {
    const size_t end = text.find('\n', begin);
    line = begin <= text.size() ? text.substr(begin, end == std::string::npos ? end : end - begin) : "";
    begin = end == std::string::npos ? text.size() + 1 : end + 1;
  }
  const auto number = [](const std::string& digits) { return static_cast<int64_t>(strtoll(digits.c_str(), nullptr, 10)); };
  return Check{lines[0], lines[1], number(lines[2]), number(lines[3]), number(lines[4]),
               parse_orders(lines[5])};
}

inline bool is_check(const XLA_FFI_ByteSpan& name) {
  return name.len == sizeof(kAttribute) - 1 && memcmp(name.ptr, kAttribute, name.len) == 0;
}

/// The text of a call's attribute; null where it has none.
inline const XLA_FFI_ByteSpan* find_check(const XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  for (int64_t i = 0; i < attrs.size; ++i)
    if (is_check(*attrs.names[i]) && attrs.types[i] == XLA_FFI_AttrType_STRING)
      return static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]);
  return nullptr;
}

}  // namespace be_guard
