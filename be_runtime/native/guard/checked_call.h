#pragma once

/// \file
/// One checked call: the wrapped handler runs with copies of the call's arrays, once or several times, and its changes
/// to them are compared.

#include <alloca.h>
#include <pthread.h>

#include "memory.h"
#include "report.h"

extern "C" {
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
}

namespace be_guard {

// Requests to ThreadSanitizer and valgrind, and the bytes on the stack below a call, which a kernel reads from an
// uninitialized local array.

/// Guard that orders a call after all calls that ended before it, for ThreadSanitizer, which does not detect XLA's
/// locks.
class CallOrder {
 public:
  CallOrder() {
    if (__tsan_acquire != nullptr) __tsan_acquire(&order_);
  }
  ~CallOrder() {
    if (__tsan_release != nullptr) __tsan_release(&order_);
  }
  CallOrder& operator=(CallOrder&&) = delete;

 private:
  static inline char order_ = 0;
};

/// Send a request to valgrind by an instruction sequence that does nothing elsewhere; then the result is 0.
inline uint64_t ask_valgrind(uint64_t request, const void* address = nullptr, size_t second = 0, size_t third = 0) {
  const volatile uint64_t words[6] = {request, reinterpret_cast<uint64_t>(address), second, third, 0, 0};
  uint64_t answer = 0;
#if defined(__x86_64__)
  asm volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
               : "+d"(answer)
               : "a"(words)
               : "cc", "memory");
#elif defined(__aarch64__)
  asm volatile(
      "mov x3, %0; mov x4, %1; ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; "
      "orr x10, x10, x10; mov %0, x3"
      : "+r"(answer)
      : "r"(words)
      : "cc", "memory", "x3", "x4");
#endif
  return answer;
}

inline bool is_on_valgrind() {
  static const bool is_on = ask_valgrind(0x1001) != 0;
  return is_on;
}

constexpr uint64_t kMemcheck = uint64_t{'M'} << 24 | uint64_t{'C'} << 16;

inline void set_defined(const void* data, size_t size) { ask_valgrind(kMemcheck + 2, data, size); }

/// Return a mask of undefined bits; null if valgrind has no information.
inline const unsigned char* read_undefined(const void* data, size_t size, Bytes* room) {
  room->resize(size + 1);
  return ask_valgrind(kMemcheck + 8, data, reinterpret_cast<size_t>(room->data()), size) == 1 ? room->data() : nullptr;
}

/// Return the end of this thread's stack; null if it is not known.
inline char* find_stack_end() {
  pthread_attr_t attributes;
  void* end = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  pthread_attr_getstack(&attributes, &end, &size);
  pthread_attr_destroy(&attributes);
  return static_cast<char*>(end);
}

/// Fill the part of the stack that the next called functions use, up to a limit.
__attribute__((noinline)) inline void fill_stack(unsigned char byte) {
  constexpr size_t kMost = size_t{1} << 20, kLeft = size_t{128} << 10;
  static thread_local char* const end = find_stack_end();
  const char* const here = static_cast<char*>(__builtin_frame_address(0));
  if (end == nullptr || static_cast<size_t>(here - end) < 2 * kLeft) return;
  const size_t room = static_cast<size_t>(here - end) - kLeft;
  const size_t size = room < kMost ? room : kMost;
  void* const at = alloca(size);
  memset(at, byte, size);
  asm volatile("" : : "r"(at) : "memory");  // so that the compiler keeps the bytes
}

/// Call a function whose stack begins below the stack of `fill_stack` itself.
template <class Function, class Argument>
__attribute__((noinline)) auto call_lower(Function* function, Argument* argument) {
  char room[512];
  asm volatile("" : : "r"(room) : "memory");
  const auto result = function(argument);
  asm volatile("" : : "r"(room) : "memory");
  return result;
}

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

/// An array of a call with its copy, and a result's content after each of the compared runs.
struct Copy : Array {
  Copy(const Array& array, size_t place) : Array(array), place(place) {}

  size_t place;        ///< among the arrays of the call
  Copy* owner = this;  ///< the argument whose memory, and so whose copy, the result uses, or this array
  bool is_taken_over = false;
  Block block{};
  Bytes first{}, second{}, again{};
  Differences differ{};
  bool depends = false;  ///< on uninitialized bytes

  bool is_shown() const { return is_result && !is_hidden; }
  bool is_own() const { return owner == this; }
  /// Return whether the array is filled with known bytes before a run.
  bool is_filled() const { return is_result && is_own(); }
};

class CheckedCall {
 public:
  CheckedCall(XLA_FFI_CallFrame* frame, const Check& check, Memory* memory)
      : frame_(frame),
        check_(check),
        memory_(memory),
        own_(frame, arrays_of(frame, check)),
        report_(check, memory->device) {
    const std::vector<Array> arrays = arrays_of(frame, check);
    copies_.reserve(arrays.size());
    for (const Array& array : arrays) {
      Copy& made = copies_.emplace_back(array, copies_.size());
      for (Copy& each : copies_)
        if (made.is_filled() && made.bytes != 0 && !each.is_result && each.buffer->data == made.buffer->data &&
            each.bytes == made.bytes)
          made.owner = &each;
      made.owner->is_taken_over |= !made.is_own();
    }
  }

  ~CheckedCall() {
    for (const Copy& each : copies_)
      if (each.is_own() && each.block.begin != nullptr && !is_lost_) memory_->drop(each.block);
  }
  CheckedCall& operator=(CheckedCall&&) = delete;

  XLA_FFI_Error* run(Handler* inner) {
    bool is_empty = true;
    for (const Copy& each : copies_) is_empty &= !each.is_result || each.elements == 0;
    if (is_empty || (check_.bits & (kNeedCopies | kFault | kBounds)) == 0) return inner(own_.get());
    if (!memory_->wait()) return fail_lost("an operation before the call of " + check_.label + " failed on the GPU: ");
    if ((check_.bits & kNeedCopies) == 0) return run_alone(inner);
    if (!make_blocks()) return inner(own_.get());
    const bool has_second = check_.runs > 1, can_hold = memory_->can_hold && check_.has(kStream);
    if (XLA_FFI_Error* error = run_once(inner, kFirst, &Copy::first, can_hold && !has_second)) return error;
    if (has_second) {
      const bool is_other = check_.has(kUnwritten);
      if (XLA_FFI_Error* error = run_once(inner, is_other ? kSecond : kFirst, &Copy::second, can_hold)) return error;
      if (XLA_FFI_Error* error = is_other ? compare(inner) : find_unequal()) return error;
    } else if (check_.has(kUnwritten)) {
      find_maybe_unwritten();
    }
    if (check_.has(kValues)) find_values();
    if (!give_results()) return fail_lost();
    return report_.close(frame_);
  }

 private:
  bool make_blocks() {
    size_t needed = 0;
    for (const Copy& each : copies_) needed += each.bytes;
    for (Copy& each : copies_) {
      if (each.is_own() && !memory_->make(&each.block, each.bytes, each.described())) {
        each.block.begin = nullptr;
        report_.note(" was not checked: there is no memory for copies of its arrays, " + std::to_string(needed >> 20) +
                     " MiB");
        return false;
      }
      each.block = each.owner->block;
    }
    for (const Copy& each : copies_) own_.point(each.place, each.block.data());
    return true;
  }

  /// Run the code with the call's own arrays, and wait for it.
  XLA_FFI_Error* run_alone(Handler* inner) {
    if (XLA_FFI_Error* error = inner(own_.get())) return fail_inner(error);
    return memory_->wait() ? nullptr : fail_lost();
  }

  bool prepare(const Fill& fill) {
    for (const Copy& each : copies_) {
      const Block& block = each.block;
      // A sanitizer must find unwritten bytes.
      if (!each.is_own() || (exact_blocks && each.is_filled())) continue;
      if (!memory_->fill(block.begin, fill.around(each.place), block.size())) return false;
      if (each.is_filled() ? !memory_->fill(block.data(), fill.within, block.bytes)
                           : !memory_->copy(block.data(), each.buffer->data, block.bytes))
        return false;
    }
    return memory_->wait();
  }

  /// Call the code with a filled stack; with a sanitizer or valgrind, the stack stays uninitialized.
  XLA_FFI_Error* call(Handler* inner, const Fill& fill) {
    if (!exact_blocks) fill_stack(fill.stack);
    return call_lower(inner, own_.get());
  }

  XLA_FFI_Error* run_once(Handler* inner, const Fill& fill, Bytes Copy::*results, bool is_held = false) {
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

  /// Before a run, mark the arguments as defined for valgrind; after it, find results that are undefined.
  void ask_valgrind_of(bool has_run) {
    Bytes room;
    for (const Copy& each : copies_) {
      const Block& block = each.block;
      if (each.is_filled() != has_run || memory_->lost_by != nullptr) continue;
      if (has_run && !each.is_hidden)
        if (const unsigned char* unset = read_undefined(block.data(), block.bytes, &room))
          report_.add_elements(
              "unset", each, changed(each, unset, Bytes(block.bytes + 1).data()),
              " returns uninitialized memory in ", "come from there, or were never written",
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
      report_.note(" was not checked for its stream: its work can't be recorded" +
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
    for (const Copy& each : copies_) {
      if (!each.is_filled()) continue;
      const unsigned char* early = memory_->read_early(each.block.data(), each.block.bytes, &room);
      if (early == nullptr) return report_.note(" was not checked for its stream: " + memory_->hold_problem);
      report_.add_elements("stream", each, changed(each, early, Bytes(each.bytes + 1, fill.within).data()),
                           " writes outside of the call's stream to ", "are written outside of it",
                           {"launch each kernel on the stream that the entry point gets: declare `stream`, and pass it "
                            "in <<<grid, block, shared, stream>>> and to each function of CUDA"});
    }
  }

  /// Examine the arrays after a run, and keep the results; false if they can't be read.
  bool look(const Fill& fill, Bytes Copy::*results) {
    Bytes room, original_room;
    for (Copy& each : copies_) {
      const unsigned char* all = memory_->read(each.block.begin, each.block.size(), &room);
      if (all == nullptr) return false;
      const unsigned char* data = all + each.block.before;
      if (each.is_own() && check_.has(kGuards)) find_written(each, data, fill.around(each.place));
      if (each.is_result) {
        (each.*results).assign(data, data + each.bytes);
      } else if (check_.has(kInputs) && !each.is_taken_over) {
        const unsigned char* original = memory_->read(each.buffer->data, each.bytes, &original_room);
        if (original == nullptr) return false;
        report_.add_elements("inputs", each, changed(each, original, data), " writes to ", "are changed",
                             {"write to a result instead: other operations may use the argument's memory",
                              "or declare it as inout, such as inout[n]:float32 in place of arg[n]; a kernel without "
                              "host code takes input_output_aliases={...}"});
      }
    }
    return true;
  }

  void find_written(const Copy& array, const unsigned char* data, unsigned char fill) {
    for (const bool is_behind : {true, false}) {
      const Elements written = is_behind ? written_around(data + array.bytes, array.block.behind, 1, fill)
                                         : written_around(data, array.block.before, -1, fill);
      if (written.count == 0) continue;
      const int64_t away = written.first * 8 / static_cast<int64_t>(array.bits);
      const int64_t element = is_behind ? array.elements + away : -1 - away;
      report_.add("guards", array, {element}, written.count,
                  " writes " + std::to_string(written.count) + (is_behind ? " bytes past " : " bytes before ") +
                      array.described() + (is_behind ? "; the first" : "; the nearest") + " would be its element " +
                      std::to_string(element) + " in memory",
                  {is_behind ? "compare the kernel's indices with the array's extents before it writes"
                             : "look for a negative index, or for an unsigned one that wrapped around"});
    }
  }

  /// Compare two runs. If their bytes don't show why they differ, more runs separate results that depend on old bytes
  /// from results that always differ. The order of the runs has no pattern, because a kernel may alternate.
  XLA_FFI_Error* compare(Handler* inner) {
    for (Copy& each : copies_) {
      if (each.is_shown()) each.differ = compare_runs(each, each.first.data(), each.second.data());
      each.depends = each.differ.others.count != 0;
    }
    for (const bool is_first : {false, true, false, true, true, false}) {
      if (std::none_of(copies_.begin(), copies_.end(), [](const Copy& each) { return each.depends; })) break;
      if (XLA_FFI_Error* error = run_once(inner, is_first ? kFirst : kSecond, &Copy::again)) return error;
      for (Copy& each : copies_) each.depends &= each.again == (is_first ? each.first : each.second);
    }
    for (const Copy& each : copies_) {
      report_.add_elements("unwritten", each, each.differ.unwritten, " does not write all of ", "are never written",
                           {"give every element a value: a result's memory holds anything before the call"});
      report_.add_elements("unwritten", each, each.differ.outside, " reads memory outside of its arrays for ",
                           "come from there",
                           {"compare the kernel's indices with the extents of the arrays that it reads"});
      if (each.depends)
        report_.add_elements("unwritten", each, each.differ.others, " reads uninitialized memory for ",
                             "depend on it",
                             {"look for a result, scratch, shared memory or a local array that is read before it is "
                              "written",
                              "and for an index outside of an argument"});
      else if (check_.has(kRepeat))
        add_unequal(each, each.differ.others);
      else if (each.differ.others.count != 0)
        report_.note(" returns other bits in each run for " + each.described() +
                     "; so reads of uninitialized memory can't be found");
    }
    return nullptr;
  }

  void add_unequal(const Array& array, const Elements& found) {
    report_.add_elements(
        "repeat", array, found, " returns other bits in each run for ", "differ",
        {"if two threads write one element, `python -m be_runtime check` names the lines: tsan on the "
         "CPU, racecheck on a GPU",
         "if it is meant, as for random numbers or sums by atomics, declare the kernel as random=True"});
  }

  /// Find results that differ between two runs with equal bytes.
  XLA_FFI_Error* find_unequal() {
    for (const Copy& each : copies_)
      if (each.is_shown()) add_unequal(each, changed(each, each.first.data(), each.second.data()));
    return nullptr;
  }

  void find_maybe_unwritten() {
    for (const Copy& each : copies_)
      if (each.is_filled() && !each.is_hidden)
        report_.add_elements("unwritten", each, still_filled(each, each.first.data(), kFirst.within),
                             " may not write all of ", "are unchanged",
                             {"it has side effects or state, so it ran once; check that every element gets a value"},
                             false);
  }

  void find_values() {
    for (const Copy& array : copies_) {
      if (!array.is_shown()) continue;
      const NotFinite found = find_not_finite(array, array.first.data());
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
    for (const Copy& array : copies_) {
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
    for (const Copy& each : copies_)
      if (each.is_result && !memory_->copy(each.buffer->data, each.block.data(), each.bytes)) return false;
    return memory_->wait();
  }

  /// Return the error of the code itself, with the line that calls it; if the GPU has failed, its error.
  XLA_FFI_Error* fail_inner(XLA_FFI_Error* error) {
    const std::string said = be_xla::message_of(frame_, error);
    if (!memory_->wait()) {
      be_xla::drop_error(frame_, error);
      return fail_lost(said + "; the GPU reports ");
    }
    // A refused access of a checked build is a finding; any other error is the kernel's own.
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
  OwnFrame own_;
  Report report_;
  std::vector<Copy> copies_;
  bool is_lost_ = false;
};

}  // namespace be_guard
