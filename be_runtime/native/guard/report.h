#pragma once

/// \file
/// The findings of one call: derived from the bytes of its arrays, returned as an error of XLA, and kept as lines of
/// JSON for Python.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "call.h"

namespace be_guard {

// Findings from the bytes of arrays, after runs of a kernel that differ in the bytes that it should not read.
//
// The second run has the complements of the first run's bytes. A bit that was written with a definite value is equal in
// both runs. So a bit that differs has no definite value, and each byte that was never written differs.

/// The bytes of a run: around arrays, in results before the run, and on the stack.
struct Fill {
  unsigned char base;
  unsigned char within;
  unsigned char stack;

  /// The byte around an array. Arrays differ in it, so that a copy from behind one to behind another shows.
  unsigned char around(size_t array) const { return static_cast<unsigned char>(base ^ (array % kKinds)); }
  bool is_around(unsigned char byte) const { return (base ^ byte) < kKinds; }

  static constexpr unsigned kKinds = 16;
};

constexpr Fill kFirst{0x9C, 0xCB, 0xA6}, kSecond{0x63, 0x34, 0x59};
static_assert((kFirst.base ^ kSecond.base) == 0xFF && (kFirst.within ^ kSecond.within) == 0xFF &&
              (kFirst.stack ^ kSecond.stack) == 0xFF);

/// The number of elements of an array with a common property, and the first of them.
struct Elements {
  int64_t count = 0;
  int64_t first = -1;

  void add(int64_t element) {
    if (count++ == 0) first = element;
  }
};

/// How the results of two runs differ.
struct Differences {
  Elements unwritten;  ///< neither run wrote a byte that differs
  Elements outside;    ///< bytes that differ are copies of bytes around an array
  Elements others;     ///< any other difference
};

/// Call `visit(element, first byte that differs)` for each element in which some bytes differ.
template <class Visit>
void each_difference(const Array& array, const unsigned char* a, const unsigned char* b, Visit visit) {
  const size_t size = array.bits / 8, in_byte = size != 0 ? 1 : 8 / array.bits;
  for (int64_t element = 0; element < array.elements; ++element) {
    const size_t index = static_cast<size_t>(element);
    size_t byte = size != 0 ? index * size : index / in_byte;
    if (size == 0) {
      if (((a[byte] ^ b[byte]) >> (index % in_byte * array.bits) & ((1u << array.bits) - 1)) == 0) continue;
    } else {
      if (memcmp(a + byte, b + byte, size) == 0) continue;
      while (a[byte] == b[byte]) ++byte;
    }
    visit(element, byte);
  }
}

inline Differences compare_runs(const Array& array, const unsigned char* a, const unsigned char* b) {
  Differences found;
  if (memcmp(a, b, array.bytes) == 0) return found;
  const size_t size = array.bits < 8 ? 1 : array.bits / 8;
  each_difference(array, a, b, [&](int64_t element, size_t byte) {
    const size_t end = byte / size * size + size;
    bool is_unwritten = true, is_outside = true;
    for (; byte < end; ++byte) {
      if (a[byte] == b[byte]) continue;
      is_unwritten &= a[byte] == kFirst.within && b[byte] == kSecond.within;
      is_outside &= kFirst.is_around(a[byte]) && (a[byte] ^ b[byte]) == 0xFF;
    }
    (is_unwritten ? found.unwritten : is_outside ? found.outside : found.others).add(element);
  });
  return found;
}

/// Find elements whose bytes all equal the fill.
inline Elements still_filled(const Array& array, const unsigned char* a, unsigned char fill) {
  Elements found;
  const size_t size = array.bits < 8 ? 1 : array.bits / 8;
  for (int64_t element = 0; element < array.elements; ++element) {
    const unsigned char* const first = a + static_cast<size_t>(element) * array.bits / 8;
    if (std::all_of(first, first + size, [&](unsigned char each) { return each == fill; })) found.add(element);
  }
  return found;
}

inline Elements changed(const Array& array, const unsigned char* a, const unsigned char* b) {
  Elements found;
  if (memcmp(a, b, array.bytes) != 0)
    each_difference(array, a, b, [&](int64_t element, size_t) { found.add(element); });
  return found;
}

/// Find the bytes around an array that were written, by their distance from the array's end or from its beginning.
///
/// \param step  1 for bytes past the array, which begin at `at`; -1 for bytes before it, which end there
inline Elements written_around(const unsigned char* at, size_t size, int step, unsigned char fill) {
  Elements found;
  for (size_t i = 0; i < size; ++i)
    if ((step > 0 ? at[i] : at[-1 - static_cast<ptrdiff_t>(i)]) != fill) found.add(static_cast<int64_t>(i));
  return found;
}

/// The encoding of numbers that are not finite.
struct FloatFormat {
  int bits;            ///< of one number; a complex element has two numbers; 0: all values are finite
  uint64_t mask;       ///< of the bits to compare
  uint64_t nan, last;  ///< the range of NaNs
  uint64_t infinity;
};

inline FloatFormat format_of(BE::DType dtype) {
  using BE::DType;
  const auto ieee = [](int bits, int mantissa_bits) {
    const uint64_t mask = ~uint64_t{0} >> (65 - bits), infinity = mask & ~((uint64_t{1} << mantissa_bits) - 1);
    return FloatFormat{bits, mask, infinity + 1, mask, infinity};
  };
  switch (dtype) {
    case DType::Float16: return ieee(16, 10);
    case DType::BFloat16: return ieee(16, 7);
    case DType::Float32:
    case DType::Complex64: return ieee(32, 23);
    case DType::Float64:
    case DType::Complex128: return ieee(64, 52);
    case DType::Float8E5M2: return ieee(8, 2);
    case DType::Float8E4M3: return ieee(8, 3);
    case DType::Float8E3M4: return ieee(8, 4);
    case DType::Float8E4M3FN: return {8, 0x7F, 0x7F, 0x7F, 0x100};
    case DType::Float8E4M3B11FNUZ:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E4M3FNUZ: return {8, 0xFF, 0x80, 0x80, 0x100};
    case DType::Float8E8M0FNU: return {8, 0xFF, 0xFF, 0xFF, 0x100};
    default: return {};
  }
}

struct NotFinite {
  Elements nan, infinity;

  const Elements& shown() const { return nan.count != 0 ? nan : infinity; }
  const char* name() const { return nan.count != 0 ? "NaN" : "infinity"; }
};

inline NotFinite find_not_finite(const Array& array, const unsigned char* data) {
  NotFinite found;
  const FloatFormat format = format_of(array.dtype);
  if (format.bits == 0) return found;
  const size_t size = static_cast<size_t>(format.bits) / 8;
  const int64_t parts = static_cast<int64_t>(array.bits) / format.bits;
  for (int64_t element = 0; element < array.elements; ++element) {
    bool is_nan = false, is_infinite = false;
    for (int64_t part = 0; part < parts; ++part) {
      uint64_t bits = 0;
      memcpy(&bits, data + static_cast<size_t>(element * parts + part) * size, size);
      bits &= format.mask;
      is_nan |= bits >= format.nan && bits <= format.last;
      is_infinite |= bits == format.infinity;
    }
    if (is_nan)
      found.nan.add(element);
    else if (is_infinite)
      found.infinity.add(element);
  }
  return found;
}

// The findings of one call.

/// One finding, with the fields of `be_runtime.Finding`. A note has the kind "note" and a message alone.
struct Finding {
  std::string kind;
  std::string kernel;
  std::string message;
  std::string array;
  std::vector<int64_t> index;
  int64_t count = 0;
  bool certain = true;
  std::string caller;
  std::string device;
  std::vector<std::string> hints;
};

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char each : text) {
    char escaped[8] = "";
    if (static_cast<unsigned char>(each) < 0x20) snprintf(escaped, sizeof(escaped), "\\u%04x", each);
    else if (each == '"' || each == '\\') escaped[0] = '\\';
    out += escaped;
    if (escaped[0] == 0 || escaped[1] == 0) out += each;
  }
  return out + '"';
}

inline std::string to_json(const Finding& finding) {
  std::string out = "{";
  for (const auto& [name, text] : {std::pair("kind", &finding.kind), std::pair("kernel", &finding.kernel),
                                   std::pair("message", &finding.message), std::pair("array", &finding.array),
                                   std::pair("caller", &finding.caller), std::pair("device", &finding.device)})
    out += quoted(name) + ": " + quoted(*text) + ", ";
  out += "\"index\": " + spell(finding.index) + ", \"count\": " + std::to_string(finding.count);
  out += std::string(", \"certain\": ") + (finding.certain ? "true" : "false") + ", \"hints\": [";
  for (size_t i = 0; i < finding.hints.size(); ++i) out += (i ? ", " : "") + quoted(finding.hints[i]);
  return out + "]}";
}

/// The findings that were not taken yet, without duplicates.
class FindingQueue {
 public:
  void add(const Finding& finding) {
    std::string line = to_json(finding);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lines_.size() < kMost && known_.insert(line).second) lines_.push_back(std::move(line));
  }

  /// Move whole lines into `room`, each with a newline, and return the number of bytes; 0 if there are none.
  int64_t take(char* room, int64_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t used = 0;
    while (!lines_.empty() && used + static_cast<int64_t>(lines_.front().size()) < size) {
      const std::string& line = lines_.front();
      line.copy(room + used, line.size());
      used += static_cast<int64_t>(line.size());
      room[used++] = '\n';
      known_.erase(line);
      lines_.pop_front();
    }
    return used;
  }

 private:
  static constexpr size_t kMost = 10000;
  std::mutex mutex_;
  std::deque<std::string> lines_;
  std::unordered_set<std::string> known_;
};

inline FindingQueue& findings = *new FindingQueue;  // handlers may run while the process ends

class Report {
 public:
  Report(const Check& check, std::string device) : check_(check), device_(std::move(device)) {}

  /// Add a finding about an array. `does` follows the kernel's name. Of findings of one kind, array and place, only the
  /// finding of the run that shows more is kept.
  void add(const char* kind, const Array& array, std::vector<int64_t> index, int64_t count, const std::string& does,
           std::vector<std::string> hints, bool certain = true) {
    const bool is_before = !index.empty() && index[0] < 0;
    Finding made{kind,  check_.label, check_.label + does, array.name(), std::move(index),
                 count, certain,      check_.caller,       device_,      std::move(hints)};
    for (Finding& each : found_) {
      if (each.kind != kind || each.array != made.array || (!each.index.empty() && each.index[0] < 0) != is_before)
        continue;
      const bool is_guard = made.kind == "guards";  // whose text begins with the count
      if (!is_guard && each.message.compare(check_.label.size(), 16, does, 0, 16) != 0) continue;
      if (is_guard && each.count < count) each = std::move(made);
      return;
    }
    found_.push_back(std::move(made));
  }

  /// Add a finding about the elements of an array, if there are any.
  void add_elements(const char* kind, const Array& array, const Elements& found, const char* does, const char* are,
                    std::vector<std::string> hints, bool certain = true) {
    if (found.count == 0) return;
    add(kind, array, array.index_of(found.first), found.count,
        does + array.described() + ": " + counted(array, found) + " " + are + ", the first is " +
            spell(array.index_of(found.first)), std::move(hints), certain);
  }

  /// Add a finding about the call as a whole.
  void add_failure(const char* kind, const std::string& text, std::vector<std::string> hints) {
    found_.push_back({kind, check_.label, text, "", {}, 0, true, check_.caller, device_, std::move(hints)});
  }

  /// Add a note about a problem that is not an error of the kernel.
  void note(const std::string& text) const {
    Finding made;
    made.kind = "note";
    made.message = check_.label + text + (check_.caller.empty() ? "" : ", called at " + check_.caller);
    findings.add(made);
  }

  static std::string counted(const Array& array, const Elements& found) {
    return std::to_string(found.count) + " of " + std::to_string(array.elements) + " elements";
  }

  /// Queue the findings, and return the call's error if a finding is certain, else null.
  XLA_FFI_Error* close(const XLA_FFI_CallFrame* frame, bool must_fail = false) {
    bool fails = must_fail;
    for (const Finding& each : found_) {
      findings.add(each);
      fails |= each.certain && !check_.has(kQuiet);
    }
    return fails ? be_xla::fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s", text().c_str()) : nullptr;
  }

 private:
  std::string text() const {
    std::string all = "BE801 ";
    std::vector<std::string> hints;
    for (const Finding& finding : found_) {
      if (!finding.certain) continue;
      all += finding.message + "\n";
      for (const std::string& hint : finding.hints)
        if (std::find(hints.begin(), hints.end(), hint) == hints.end()) hints.push_back(hint);
    }
    if (!check_.caller.empty()) all += "  called at " + check_.caller + "\n";
    for (const std::string& hint : hints) all += "hint: " + hint + "\n";
    all.pop_back();
    return all;
  }

  const Check& check_;
  std::string device_;
  std::vector<Finding> found_;
};

}  // namespace be_guard
