#pragma once

/// \file
/// Tools that watch a checked call, ThreadSanitizer and valgrind, and the bytes of the stack below a call, which a
/// kernel finds in a local array that it never set.

#include <alloca.h>
#include <pthread.h>

#include <cstdint>

#include "memory.h"

extern "C" {
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
}

namespace be_guard {

/// Guard by which ThreadSanitizer knows that a call follows all calls that ended before it: it does not see XLA's
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

/// Ask valgrind: an instruction sequence that does nothing elsewhere. The answer is 0 then.
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

/// Return a mask of bits that are not set; null if valgrind doesn't know.
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

/// Fill the memory that the functions called next have for their stack, up to a limit.
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

}  // namespace be_guard
