#pragma once

/// \file
/// One checked call: the code behind a slot runs with copies of the call's arrays, once or several times, and its
/// changes to them are compared.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "memory.h"
#include "report.h"
#include "watchers.h"

namespace be_guard {

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

class CheckedCall {
 public:
  CheckedCall(XLA_FFI_CallFrame* frame, const Check& check, Memory* memory)
      : frame_(frame),
        check_(check),
        memory_(memory),
        can_hold_(memory->can_hold && check.has(kStream)),
        report_(check, memory->device),
        arrays_(arrays_of(frame, check)),
        own_(frame, arrays_),
        blocks_(arrays_.size()) {
    for (size_t i = 0; i < arrays_.size(); ++i) owner_.push_back(owner_of(i));
  }

  ~CheckedCall() {
    for (size_t i = 0; i < made_; ++i)
      if (owner_[i] == i && !is_lost_) memory_->drop(blocks_[i]);
  }
  CheckedCall& operator=(CheckedCall&&) = delete;

  XLA_FFI_Error* run(Handler* inner) {
    bool is_empty = true;
    for (const Array& array : arrays_) is_empty &= !array.is_result || array.elements == 0;
    if (is_empty || (check_.bits & (kNeedCopies | kFault | kBounds)) == 0) return inner(own_.get());
    if (!memory_->wait()) return fail_lost("an operation before the call of " + check_.label + " failed on the GPU: ");
    if ((check_.bits & kNeedCopies) == 0) return run_alone(inner);
    if (!make_blocks()) {
      report_.note(" was not checked: there is no memory for copies of its arrays, " + std::to_string(needed_ >> 20) +
                   " MiB");
      return inner(own_.get());
    }
    const bool has_second = check_.runs > 1;
    Contents first, second;
    if (XLA_FFI_Error* error = run_once(inner, kFirst, &first, can_hold_ && !has_second)) return error;
    if (has_second) {
      const bool is_other = check_.has(kUnwritten);
      if (XLA_FFI_Error* error = run_once(inner, is_other ? kSecond : kFirst, &second, can_hold_)) return error;
      if (!is_other) find_unequal(first, second);
      else if (XLA_FFI_Error* error = compare(inner, first, second)) return error;
    } else if (check_.has(kUnwritten)) {
      find_maybe_unwritten(first);
    }
    if (check_.has(kValues)) find_values(first);
    if (!give_results()) return fail_lost();
    return report_.close(frame_);
  }

 private:
  using Contents = std::vector<Bytes>;  // of each result; empty for the others

  /// Return the array whose copy this one uses: an argument whose memory a result has taken over, or itself.
  size_t owner_of(size_t index) const {
    if (!arrays_[index].is_result || arrays_[index].bytes == 0) return index;
    for (size_t i = 0; i < arrays_.size() && !arrays_[i].is_result; ++i)
      if (arrays_[i].buffer->data == arrays_[index].buffer->data && arrays_[i].bytes == arrays_[index].bytes) return i;
    return index;
  }

  bool is_taken_over(size_t index) const {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (i != index && owner_[i] == index) return true;
    return false;
  }

  /// Return whether a run begins with bytes of ours in an array.
  bool is_filled(size_t index) const { return arrays_[index].is_result && owner_[index] == index; }

  bool make_blocks() {
    for (const Array& array : arrays_) needed_ += array.bytes;
    for (; made_ < arrays_.size(); ++made_) {
      if (owner_[made_] != made_)
        blocks_[made_] = blocks_[owner_[made_]];
      else if (!memory_->make(&blocks_[made_], arrays_[made_].bytes, arrays_[made_].described()))
        return false;
    }
    for (size_t i = 0; i < arrays_.size(); ++i) own_.point(i, blocks_[i].data());
    return true;
  }

  /// Run the code with the call's own arrays, and wait for it.
  XLA_FFI_Error* run_alone(Handler* inner) {
    if (XLA_FFI_Error* error = inner(own_.get())) return fail_inner(error);
    return memory_->wait() ? nullptr : fail_lost();
  }

  bool prepare(const Fill& fill) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Block& block = blocks_[i];
      if (owner_[i] != i) continue;
      // A sanitizer should see unwritten bytes.
      if (exact_blocks && is_filled(i)) continue;
      if (!memory_->fill(block.begin, fill.around(i), block.size())) return false;
      if (is_filled(i) ? !memory_->fill(block.data(), fill.within, block.bytes)
                       : !memory_->copy(block.data(), arrays_[i].buffer->data, block.bytes))
        return false;
    }
    return memory_->wait();
  }

  /// Call the code with a filled stack. A sanitizer, or valgrind, should see an unwritten stack.
  XLA_FFI_Error* call(Handler* inner, const Fill& fill) {
    if (!exact_blocks) fill_stack(fill.stack);
    return call_lower(inner, own_.get());
  }

  XLA_FFI_Error* run_once(Handler* inner, const Fill& fill, Contents* results, bool is_held = false) {
    if (!prepare(fill)) return fail_lost();
    if (is_on_valgrind()) ask_valgrind_of(false);
    bool is_done = false;
    if (is_held && memory_->hold())
      if (XLA_FFI_Error* error = run_held(inner, fill, &is_done)) return error;
    if (!is_done) {
      if (XLA_FFI_Error* error = call(inner, fill)) return fail_inner(error);
      if (!memory_->wait()) return fail_lost();
    }
    if (is_on_valgrind()) ask_valgrind_of(true);
    return look(fill, results) ? nullptr : fail_lost();
  }

  /// Tell valgrind, before a run, that arguments are set; find, after it, results that valgrind knows to be unset.
  void ask_valgrind_of(bool has_run) {
    Bytes room;
    for (size_t i = 0; i < arrays_.size() && memory_->lost_by == nullptr; ++i) {
      const Block& block = blocks_[i];
      if (is_filled(i) != has_run) continue;
      const unsigned char* bits = has_run ? read_undefined(block.data(), block.bytes, &room) : nullptr;
      const Elements found = bits == nullptr || arrays_[i].is_hidden
                                 ? Elements{}
                                 : changed(arrays_[i], bits, Bytes(block.bytes + 1).data());
      report_.add_elements("unset", arrays_[i], found, " gives values of memory that nobody has set in ",
                           "come from there, or were never written",
                           {"look for a local array, scratch or memory of malloc that is read before it is written"});
      set_defined(block.data(), block.bytes);
    }
  }

  /// Run the code while its stream is held, so that bytes written meanwhile come from outside of the stream.
  XLA_FFI_Error* run_held(Handler* inner, const Fill& fill, bool* is_done) {
    XLA_FFI_Error* error = call(inner, fill);
    const bool is_kept = memory_->keep();
    if (error != nullptr || !is_kept) {
      if (error != nullptr) be_xla::drop_error(frame_, error);
      report_.note(" was not checked for its stream: what it does can't be recorded" +
                   (is_kept ? "" : ", " + memory_->hold_problem));
    } else {
      find_early(fill);
      *is_done = memory_->let_go();
      if (*is_done) return memory_->wait() ? nullptr : fail_lost();
      report_.note(" was not run as it was recorded: " + memory_->hold_problem);
    }
    return prepare(fill) ? nullptr : fail_lost();
  }

  /// Find results that were written although the call's stream is held.
  void find_early(const Fill& fill) {
    Bytes room;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!is_filled(i)) continue;
      const unsigned char* early = memory_->read_early(blocks_[i].data(), blocks_[i].bytes, &room);
      if (early == nullptr) return report_.note(" was not checked for its stream: " + memory_->hold_problem);
      const Bytes untouched(arrays_[i].bytes + 1, fill.within);
      const Elements found = changed(arrays_[i], early, untouched.data());
      report_.add_elements("stream", arrays_[i], found, " writes outside of the call's stream to ", "are written so",
                           {"launch each kernel on the stream that the entry point gets: declare `stream`, and pass it "
                            "in <<<grid, block, shared, stream>>> and to each function of CUDA"});
    }
  }

  /// Examine the arrays after a run, and keep the results; false if they can't be read.
  bool look(const Fill& fill, Contents* results) {
    results->assign(arrays_.size(), {});
    Bytes room, original_room;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Block& block = blocks_[i];
      const unsigned char* all = memory_->read(block.begin, block.size(), &room);
      if (all == nullptr) return false;
      const unsigned char* data = all + block.before;
      if (owner_[i] == i && check_.has(kGuards)) find_written(i, all, fill.around(i));
      if (arrays_[i].is_result) {
        (*results)[i].assign(data, data + block.bytes);
      } else if (check_.has(kInputs) && !is_taken_over(i)) {
        const unsigned char* original = memory_->read(arrays_[i].buffer->data, block.bytes, &original_room);
        if (original == nullptr) return false;
        report_.add_elements("inputs", arrays_[i], changed(arrays_[i], original, data), " writes to ", "are changed",
                             {"write to a result instead: other operations may use the argument's memory",
                              "or declare that a result takes it over: with_options(input_output_aliases={...})"});
      }
    }
    return true;
  }

  void find_written(size_t index, const unsigned char* all, unsigned char fill) {
    const Block& block = blocks_[index];
    const Array& array = arrays_[index];
    const int64_t bits = static_cast<int64_t>(array.bits);
    for (const int step : {1, -1}) {
      const bool is_behind = step > 0;
      const Elements written = written_around(all + block.before + (is_behind ? block.bytes : 0),
                                              is_behind ? block.behind : block.before, step, fill);
      if (written.count == 0) continue;
      const int64_t away = written.first * 8 / bits, element = is_behind ? array.elements + away : -1 - away;
      report_.add("guards", array, {element}, written.count,
                  " writes " + std::to_string(written.count) + (is_behind ? " bytes behind " : " bytes before ") +
                      array.described() + (is_behind ? "; the first" : "; the nearest") + " would be its element " +
                      std::to_string(element) + " in memory",
                  {is_behind ? "compare the kernel's indices with the array's extents before it writes"
                             : "look for a negative index, or for an unsigned one that wrapped around"});
    }
  }

  /// Compare two runs. If their bytes don't show why they differ, more runs separate results that depend on old bytes
  /// from results that always differ. The order of the runs has no pattern, because a kernel may alternate.
  XLA_FFI_Error* compare(Handler* inner, const Contents& first, const Contents& second) {
    std::vector<Differences> found(arrays_.size());
    std::vector<bool> depends(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!arrays_[i].is_result || arrays_[i].is_hidden) continue;
      found[i] = compare_runs(arrays_[i], first[i].data(), second[i].data());
      depends[i] = found[i].others.count != 0;
    }
    Contents again;
    for (const bool is_first : {false, true, false, true, true, false}) {
      if (std::find(depends.begin(), depends.end(), true) == depends.end()) break;
      if (XLA_FFI_Error* error = run_once(inner, is_first ? kFirst : kSecond, &again)) return error;
      for (size_t i = 0; i < arrays_.size(); ++i)
        depends[i] = depends[i] && again[i] == (is_first ? first : second)[i];
    }
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      const Differences& differ = found[i];
      report_.add_elements("unwritten", array, differ.unwritten, " does not write all of ", "are never written",
                           {"give every element a value: a result's memory holds anything before the call"});
      report_.add_elements("unwritten", array, differ.outside, " reads memory outside of its arrays for ",
                           "come from there", {"compare the kernel's indices with the extents of what it reads"});
      if (depends[i])
        report_.add_elements("unwritten", array, differ.others, " reads memory that nobody has set for ",
                             "depend on it",
                             {"look for a result, scratch, shared memory or a local array that is read before it is "
                              "written",
                              "and for an index outside of an argument"});
      else if (check_.has(kRepeat))
        add_unequal(array, differ.others);
      else if (differ.others.count != 0)
        report_.note(" gives other bits in each run for " + array.described() +
                     "; so it can't be said whether it reads memory that nobody has set");
    }
    return nullptr;
  }

  void add_unequal(const Array& array, const Elements& found) {
    report_.add_elements(
        "repeat", array, found, " gives other bits in each run for ", "differ",
        {"if two threads write one element, `python -m be_runtime check` names the lines: tsan on the "
         "CPU, racecheck on a GPU",
         "if it is meant, as for random numbers or sums by atomics, declare the kernel as random=True"});
  }

  /// Find results that differ between two runs with equal bytes.
  void find_unequal(const Contents& first, const Contents& second) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!arrays_[i].is_result || arrays_[i].is_hidden) continue;
      add_unequal(arrays_[i], changed(arrays_[i], first[i].data(), second[i].data()));
    }
  }

  void find_maybe_unwritten(const Contents& first) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!is_filled(i) || arrays_[i].is_hidden) continue;
      report_.add_elements("unwritten", arrays_[i], still_filled(arrays_[i], first[i].data(), kFirst.within),
                           " may not write all of ", "have the bytes of before",
                           {"it has side effects or state, so it ran once; look whether every element gets a value"},
                           false);
    }
  }

  void find_values(const Contents& first) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (!array.is_result || array.is_hidden) continue;
      const NotFinite found = find_not_finite(array, first[i].data());
      if (found.shown().count == 0) continue;
      const std::vector<int64_t> index = array.index_of(found.shown().first);
      std::string text = std::string(" gives ") + found.name() + " in " + array.described() + ": " +
                         Report::counted(array, found.shown()) + ", the first is " + spell(index);
      if (found.nan.count != 0 && found.infinity.count != 0)
        text += "; " + std::to_string(found.infinity.count) + " are infinite";
      report_.add("values", array, index, found.shown().count, text + inputs_not_finite(),
                  {"if such values are meant, leave the check out: debug('-values')"});
    }
  }

  /// Describe the arguments that are not finite either.
  std::string inputs_not_finite() {
    std::string text;
    Bytes room;
    for (const Array& array : arrays_) {
      if (array.is_result || array.bytes == 0) continue;
      const unsigned char* data = memory_->read(array.buffer->data, array.bytes, &room);
      if (data == nullptr) continue;
      const NotFinite found = find_not_finite(array, data);
      if (found.shown().count != 0)
        text += "; " + array.name() + " has " + found.name() + " too, first at " +
                spell(array.index_of(found.shown().first));
    }
    return text.empty() ? "; the arguments are finite" : text;
  }

  /// Copy the results of the last run to the call's own.
  bool give_results() {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (arrays_[i].is_result && !memory_->copy(arrays_[i].buffer->data, blocks_[i].data(), blocks_[i].bytes))
        return false;
    return memory_->wait();
  }

  /// Return the error of the code itself, with the line that calls it; if the GPU has failed, its error.
  XLA_FFI_Error* fail_inner(XLA_FFI_Error* error) {
    const std::string said = be_xla::message_of(frame_, error);
    if (!memory_->wait()) {
      be_xla::drop_error(frame_, error);
      return fail_lost(said + "; the GPU says ");
    }
    // An access that a checked build refuses is a finding, any other error the kernel's own.
    const bool is_access = said.find(": at<") != std::string::npos || said.find(": data_ptr<") != std::string::npos;
    if (is_access && check_.has(kBounds)) {
      be_xla::drop_error(frame_, error);
      report_.add_failure("bounds", said, {});
      return report_.close(frame_, true);
    }
    report_.add_failure("error", said, {});
    report_.close(frame_);
    if (check_.caller.empty()) return error;
    be_xla::drop_error(frame_, error);
    return be_xla::fail(frame_, XLA_FFI_Error_Code_INTERNAL, "%s\n  called at %s", said.c_str(), check_.caller.c_str());
  }

  /// Return the error after which this process can't use the GPU; the CPU has no such failure.
  XLA_FFI_Error* fail_lost(const std::string& what = "") {
    is_lost_ = true;
    if (memory_->lost_by != nullptr)
      *memory_->lost_by = check_.label + (check_.caller.empty() ? "" : ", called at " + check_.caller);
    report_.add_failure(
        "fault", (what.empty() ? check_.label + " failed on the GPU: " : what) + memory_->problem,
        {"the GPU's context is lost: nothing can run on it in this process, which has to be restarted",
         "run the program under `python -m be_runtime check`, which names the access by compute-sanitizer"});
    return report_.close(frame_, true);
  }

  XLA_FFI_CallFrame* frame_;
  const Check& check_;
  Memory* memory_;
  bool can_hold_;
  Report report_;
  std::vector<Array> arrays_;
  OwnFrame own_;
  std::vector<Block> blocks_;
  std::vector<size_t> owner_;
  size_t made_ = 0, needed_ = 0;
  bool is_lost_ = false;
};

}  // namespace be_guard
