#pragma once

/// \file
/// The findings of one call, as an error of XLA and as lines of JSON until Python takes them.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "patterns.h"

namespace be_guard {

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

inline void add_text(std::string& out, const std::string& text) {
  out += '"';
  for (const char each : text) {
    if (static_cast<unsigned char>(each) < 0x20) {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\u%04x", each);
      out += escaped;
      continue;
    }
    if (each == '"' || each == '\\') out += '\\';
    out += each;
  }
  out += '"';
}

inline std::string to_json(const Finding& finding) {
  std::string out = "{";
  const auto field = [&](const char* name, const std::string& text) {
    out += std::string("\"") + name + "\": ";
    add_text(out, text);
    out += ", ";
  };
  field("kind", finding.kind);
  field("kernel", finding.kernel);
  field("message", finding.message);
  field("array", finding.array);
  field("caller", finding.caller);
  field("device", finding.device);
  out += "\"index\": " + spell(finding.index) + ", \"count\": " + std::to_string(finding.count);
  out += std::string(", \"certain\": ") + (finding.certain ? "true" : "false") + ", \"hints\": [";
  for (size_t i = 0; i < finding.hints.size(); ++i) {
    if (i) out += ", ";
    add_text(out, finding.hints[i]);
  }
  return out + "]}";
}

/// The findings that nobody has taken yet, each once.
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

inline FindingQueue& findings() {
  static FindingQueue* const queue = new FindingQueue;  // handlers may run while the process ends
  return *queue;
}

class Report {
 public:
  Report(const Check& check, std::string device) : check_(check), device_(std::move(device)) {}

  /// Add a finding about an array. `does` follows the kernel's name; one of the same kind, array and place is enough:
  /// the one of the run that shows more.
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

  /// Add a note about something that is not a fault of the kernel.
  void note(const std::string& text) const {
    Finding made;
    made.kind = "note";
    made.message = check_.label + text + (check_.caller.empty() ? "" : ", called at " + check_.caller);
    findings().add(made);
  }

  static std::string counted(const Array& array, const Elements& found) {
    return std::to_string(found.count) + " of " + std::to_string(array.elements) + " elements";
  }

  /// Hand the findings over, and return the call's error if some are certain, else null.
  XLA_FFI_Error* close(const XLA_FFI_CallFrame* frame, bool must_fail = false) {
    bool fails = must_fail;
    for (const Finding& each : found_) {
      findings().add(each);
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
