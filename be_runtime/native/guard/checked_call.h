#pragma once

/// \file
/// One checked call: the code behind a slot runs with copies of the call's arrays, once or several times, and what it
/// did to them is compared.

#include <memory>
#include <string>
#include <vector>

#include "../taken_error.h"
#include "arrays.h"
#include "check.h"
#include "findings.h"
#include "memory.h"
#include "patterns.h"
#include "slots.h"
#include "values.h"

namespace be_guard {

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
  OwnFrame(const OwnFrame&) = delete;
  OwnFrame& operator=(const OwnFrame&) = delete;

  void point(size_t array, void* data) { buffers_[array].data = data; }
  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  XLA_FFI_CallFrame frame_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> values_, args_, rets_;
  std::vector<XLA_FFI_Buffer> buffers_;
};

/// A failure of a call with all that it has to say.
inline XLA_FFI_Error* fail_with(const XLA_FFI_CallFrame* frame, const std::vector<Finding>& findings) {
  std::string text = "BE801 ";
  for (const Finding& finding : findings) text += finding.message + "\n";
  if (!findings[0].caller.empty()) text += "  called at " + findings[0].caller + "\n";
  std::vector<std::string> said;
  for (const Finding& finding : findings)
    for (const std::string& hint : finding.hints) {
      bool is_new = true;
      for (const std::string& each : said) is_new &= each != hint;
      if (is_new) said.push_back(hint);
    }
  for (const std::string& hint : said) text += "hint: " + hint + "\n";
  text.pop_back();
  return be_xla::fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s", text.c_str());
}

inline bool all_results_empty(const std::vector<Array>& arrays) {
  for (const Array& array : arrays)
    if (array.is_result && array.elements != 0) return false;
  return true;
}

/// The work of one checked call.
class CheckedCall {
 public:
  CheckedCall(XLA_FFI_CallFrame* frame, Check check, Memory* memory, std::string device)
      : frame_(frame),
        check_(std::move(check)),
        memory_(memory),
        device_(std::move(device)),
        arrays_(arrays_of(frame, check_.hidden)),
        own_(frame, arrays_),
        blocks_(arrays_.size()),
        shared_with_(arrays_.size()) {
    for (size_t i = 0; i < arrays_.size(); ++i) shared_with_[i] = owner_of(i);
  }

  ~CheckedCall() {
    for (size_t i = 0; i < made_; ++i)
      if (shared_with_[i] == i && !is_lost_) memory_->drop(blocks_[i]);
  }
  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;

  XLA_FFI_Error* run(Handler* inner) {
    if (all_results_empty(arrays_)) return inner(own_.get());
    if (!make_blocks()) {
      note(check_.label + " was not checked: no memory for copies of its arrays (" + std::to_string(needed_ >> 20) +
           " MiB)" + (memory_->problem.empty() ? "" : ", " + memory_->problem));
      return inner(own_.get());
    }
    std::vector<std::vector<unsigned char>> first, second, third;
    if (XLA_FFI_Error* error = run_once(inner, kFirst, &first)) return error;
    if (check_.runs > 1) {
      if (XLA_FFI_Error* error = run_once(inner, kSecond, &second)) return error;
      if (XLA_FFI_Error* error = compare(inner, first, second, &third)) return error;
    } else if (check_.has(kUnwritten)) {
      find_maybe_unwritten(first);
    }
    if (check_.has(kValues)) find_values(first);
    if (!give_results()) return fail_memory();
    return report();
  }

 private:
  using Contents = std::vector<std::vector<unsigned char>>;  // of each result; empty for the others

  /// The array whose copy this one uses: an argument that a result has taken over, or itself.
  size_t owner_of(size_t index) const {
    if (!arrays_[index].is_result || arrays_[index].bytes == 0) return index;
    for (size_t i = 0; i < arrays_.size() && !arrays_[i].is_result; ++i)
      if (arrays_[i].buffer->data == arrays_[index].buffer->data && arrays_[i].bytes == arrays_[index].bytes) return i;
    return index;
  }

  bool is_taken_over(size_t index) const {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (i != index && shared_with_[i] == index) return true;
    return false;
  }

  bool make_blocks() {
    for (const Array& array : arrays_) needed_ += array.bytes;
    for (made_ = 0; made_ < arrays_.size(); ++made_) {
      const size_t owner = shared_with_[made_];
      if (owner != made_)
        blocks_[made_] = blocks_[owner];
      else if (!memory_->make(&blocks_[made_], arrays_[made_].bytes))
        return false;
    }
    return true;
  }

  bool prepare(const Fill& fill) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Block& block = blocks_[i];
      if (shared_with_[i] == i) {
        if (!memory_->fill(block.begin, fill.around, block.size())) return false;
        const bool is_kept = !arrays_[i].is_result;
        if (is_kept ? !memory_->copy(block.data(), arrays_[i].buffer->data, block.bytes)
                    : !memory_->fill(block.data(), fill.within, block.bytes))
          return false;
      }
      own_.point(i, block.data());
    }
    return memory_->wait();
  }

  XLA_FFI_Error* run_once(Handler* inner, const Fill& fill, Contents* results) {
    if (!prepare(fill)) return fail_memory();
    if (XLA_FFI_Error* error = inner(own_.get())) return error;
    if (!memory_->wait()) return fail_memory();
    results->resize(arrays_.size());
    std::vector<unsigned char> room, original_room;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Block& block = blocks_[i];
      const unsigned char* all = memory_->read(block.begin, block.size(), &room);
      if (all == nullptr) return fail_memory();
      const unsigned char* data = all + block.before;
      if (shared_with_[i] == i && check_.has(kGuards)) find_written(i, all, fill.around);
      if (arrays_[i].is_result) {
        (*results)[i].assign(data, data + block.bytes);
      } else if (check_.has(kInputs) && !is_taken_over(i)) {
        const unsigned char* original = memory_->read(arrays_[i].buffer->data, block.bytes, &original_room);
        if (original == nullptr) return fail_memory();
        find_changed_input(i, original, data);
      }
    }
    return nullptr;
  }

  void find_written(size_t index, const unsigned char* all, unsigned char fill) {
    const Block& block = blocks_[index];
    const Array& array = arrays_[index];
    const Written behind = written_around(all + block.before + block.bytes, block.behind, 1, fill);
    const Written before = written_around(all + block.before, block.before, -1, fill);
    if (behind.count != 0) {
      const int64_t element = array.elements + behind.distance * 8 / static_cast<int64_t>(array.bits);
      add("guards", array, {element}, behind.count,
          " writes " + std::to_string(behind.count) + " bytes behind " + array.described() +
              "; the first would be its element " + std::to_string(element) + " in memory",
          {"compare the kernel's indices with the array's extents before it writes"});
    }
    if (before.count != 0) {
      const int64_t element = -1 - before.distance * 8 / static_cast<int64_t>(array.bits);
      add("guards", array, {element}, before.count,
          " writes " + std::to_string(before.count) + " bytes before " + array.described() +
              "; the nearest would be its element " + std::to_string(element) + " in memory",
          {"look for a negative index, or for an unsigned one that wrapped around"});
    }
  }

  void find_changed_input(size_t index, const unsigned char* original, const unsigned char* data) {
    const Array& array = arrays_[index];
    const Elements found = changed(array, original, data);
    if (found.count == 0) return;
    add_elements("inputs", array, found, " writes to ", "are changed",
                 {"write to a result instead; XLA shares an argument's memory with other operations",
                  "if a result may take an argument's memory over, declare it: with_options(input_output_aliases={...})"});
  }

  XLA_FFI_Error* compare(Handler* inner, const Contents& first, const Contents& second, Contents* third) {
    bool is_open = false;
    std::vector<Differences> found(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!arrays_[i].is_result || arrays_[i].is_hidden) continue;
      found[i] = compare_runs(arrays_[i], first[i].data(), second[i].data());
      is_open |= found[i].others.count != 0;
    }
    if (is_open)
      if (XLA_FFI_Error* error = run_once(inner, kFirst, third)) return error;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (found[i].unwritten.count != 0)
        add_elements("unwritten", array, found[i].unwritten, " does not write all of ", "are never written",
                     {"give every element a value: a result's memory holds anything before the call"});
      if (found[i].outside.count != 0)
        add_elements("unwritten", array, found[i].outside, " reads memory outside of its arrays for ", "come from there",
                     {"compare the kernel's indices with the extents of what it reads"});
      if (found[i].others.count != 0) find_others(i, found[i].others, first[i], (*third)[i]);
    }
    return nullptr;
  }

  void find_others(size_t index, const Elements& found, const std::vector<unsigned char>& first,
                   const std::vector<unsigned char>& third) {
    const Array& array = arrays_[index];
    if (first == third) {
      add_elements("unwritten", array, found, " reads memory that nobody has set for ", "depend on it",
                   {"look for a result, scratch or shared memory that is read before it is written",
                    "and for an index outside of an argument"});
    } else if (check_.has(kRepeat)) {
      note(check_.label + " gives other bits in each run for " + array.described() + ": " +
           std::to_string(found.count) + " elements, the first is " + spell(array.index_of(found.first)) +
           "; whether it reads memory that nobody has set is not known" + called());
    }
  }

  void find_maybe_unwritten(const Contents& first) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (!array.is_result || array.is_hidden || shared_with_[i] != i) continue;
      const Elements found = still_filled(array, first[i].data(), kFirst.within);
      if (found.count == 0) continue;
      add_elements("unwritten", array, found, " may not write all of ", "have the bytes that were there before",
                   {"it runs once, since it does more than compute results: look whether every element gets a value"},
                   false);
    }
  }

  void find_values(const Contents& first) {
    std::vector<unsigned char> room;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (!array.is_result || array.is_hidden) continue;
      const NotFinite found = find_not_finite(array, first[i].data());
      if (found.nan.count + found.infinity.count == 0) continue;
      const bool is_nan = found.nan.count != 0;
      const Elements& shown = is_nan ? found.nan : found.infinity;
      std::string text = std::string(" gives ") + (is_nan ? "NaN" : "infinity") + " in " + array.described() + ": " +
                         counted(array, shown) + " are " + (is_nan ? "NaN" : "infinite") + ", the first is " +
                         spell(array.index_of(shown.first));
      if (is_nan && found.infinity.count != 0) text += "; " + std::to_string(found.infinity.count) + " are infinite";
      add("values", array, array.index_of(shown.first), shown.count, text + inputs_not_finite(&room),
          {"if such values are meant, leave the check out: debug('-values')"});
    }
  }

  /// Which arguments are not finite either.
  std::string inputs_not_finite(std::vector<unsigned char>* room) {
    std::string text;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (array.is_result || array.bytes == 0) continue;
      const unsigned char* data = memory_->read(array.buffer->data, array.bytes, room);
      if (data == nullptr) continue;
      const NotFinite found = find_not_finite(array, data);
      if (found.nan.count + found.infinity.count == 0) continue;
      const bool is_nan = found.nan.count != 0;
      text += "; " + array.name() + " has " + (is_nan ? "NaN" : "infinity") + " too, first at " +
              spell(array.index_of((is_nan ? found.nan : found.infinity).first));
    }
    return text.empty() ? "; the arguments are finite" : text;
  }

  /// Copies the results of the last run to the call's own.
  bool give_results() {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (arrays_[i].is_result && !memory_->copy(arrays_[i].buffer->data, blocks_[i].data(), blocks_[i].bytes))
        return false;
    return memory_->wait();
  }

  static std::string counted(const Array& array, const Elements& found) {
    return std::to_string(found.count) + " of " + std::to_string(array.elements) + " elements";
  }

  void add_elements(const char* kind, const Array& array, const Elements& found, const char* does, const char* are,
                    std::vector<std::string> hints, bool certain = true) {
    add(kind, array, array.index_of(found.first), found.count,
        does + array.described() + ": " + counted(array, found) + " " + are + ", the first is " +
            spell(array.index_of(found.first)),
        std::move(hints), certain);
  }

  /// Adds a finding, unless an earlier run had one of its kind for the same array.
  void add(const char* kind, const Array& array, std::vector<int64_t> index, int64_t count, const std::string& text,
           std::vector<std::string> hints, bool certain = true) {
    Finding made{kind,  check_.label, check_.label + text, array.name(), std::move(index), count, certain,
                 check_.caller, device_, std::move(hints)};
    for (const Finding& known : found_)
      if (known.kind == made.kind && known.array == made.array && (known.index < std::vector<int64_t>{0}) ==
              (made.index < std::vector<int64_t>{0}) && known.message.substr(0, 24) == made.message.substr(0, 24))
        return;
    found_.push_back(std::move(made));
  }

  std::string called() const { return check_.caller.empty() ? "" : ", called at " + check_.caller; }

  void note(const std::string& text) {
    Finding made;
    made.kind = "note";
    made.message = text;
    findings().add(made);
  }

  XLA_FFI_Error* report() {
    std::vector<Finding> certain;
    for (const Finding& each : found_) {
      findings().add(each);
      if (each.certain) certain.push_back(each);
    }
    return certain.empty() || check_.has(kQuiet) ? nullptr : fail_with(frame_, certain);
  }

  XLA_FFI_Error* fail_memory() {
    is_lost_ = true;
    return be_xla::fail(frame_, XLA_FFI_Error_Code_INTERNAL, "%s: %s", check_.label.c_str(), memory_->problem.c_str());
  }

  XLA_FFI_CallFrame* frame_;
  Check check_;
  Memory* memory_;
  std::string device_;
  std::vector<Array> arrays_;
  OwnFrame own_;
  std::vector<Block> blocks_;
  std::vector<size_t> shared_with_;
  std::vector<Finding> found_;
  size_t made_ = 0, needed_ = 0;
  bool is_lost_ = false;
};

}  // namespace be_guard
