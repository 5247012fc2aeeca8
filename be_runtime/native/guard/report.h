#pragma once

/// \file
/// What one call did, as findings and as an error of XLA.

#include <string>
#include <utility>
#include <vector>

#include "../taken_error.h"
#include "arrays.h"
#include "check.h"
#include "findings.h"
#include "patterns.h"

namespace be_guard {

class Report {
 public:
  Report(const Check& check, std::string device) : check_(check), device_(std::move(device)) {}

  /// Adds a finding about an array. `does` follows the kernel's name; one of the same kind, array and place is enough:
  /// the one of the run that shows more.
  void add(const char* kind, const Array& array, std::vector<int64_t> index, int64_t count, const std::string& does,
           std::vector<std::string> hints, bool certain = true) {
    const bool is_before = !index.empty() && index[0] < 0;
    Finding made{kind, check_.label, check_.label + does, array.name(), std::move(index), count, certain,
                 check_.caller, device_, std::move(hints)};
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

  /// Adds a finding about some elements of an array.
  void add_elements(const char* kind, const Array& array, const Elements& found, const char* does, const char* are,
                    std::vector<std::string> hints, bool certain = true) {
    add(kind, array, array.index_of(found.first), found.count,
        does + array.described() + ": " + counted(array, found) + " " + are + ", the first is " +
            spell(array.index_of(found.first)),
        std::move(hints), certain);
  }

  /// Adds a finding about the call as a whole.
  void add_failure(const char* kind, const std::string& text, std::vector<std::string> hints) {
    found_.push_back({kind, check_.label, text, "", {}, 0, true, check_.caller, device_, std::move(hints)});
  }

  /// Says something that is no fault of the kernel.
  void note(const std::string& text) const {
    Finding made;
    made.kind = "note";
    made.message = check_.label + text + (check_.caller.empty() ? "" : ", called at " + check_.caller);
    findings().add(made);
  }

  static std::string counted(const Array& array, const Elements& found) {
    return std::to_string(found.count) + " of " + std::to_string(array.elements) + " elements";
  }

  /// Hands the findings over, and makes the call's error of those that are certain; null where it has none.
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
      for (const std::string& hint : finding.hints) {
        bool is_new = true;
        for (const std::string& each : hints) is_new &= each != hint;
        if (is_new) hints.push_back(hint);
      }
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
