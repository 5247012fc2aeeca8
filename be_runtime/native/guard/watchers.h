#pragma once

/// \file
/// What checked calls tell the tools that watch the process: ThreadSanitizer, and valgrind.

#include <cstddef>
#include <cstdint>

#include "memory.h"

extern "C" {
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
}

namespace be_guard {

/// Tells ThreadSanitizer that a call comes after all that were over when it began: XLA's locks are out of its sight.
class CallOrder {
 public:
  CallOrder() {
    if (__tsan_acquire != nullptr) __tsan_acquire(&order_);
  }
  ~CallOrder() {
    if (__tsan_release != nullptr) __tsan_release(&order_);
  }
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

 private:
  static inline char order_ = 0;
};

/// Asks valgrind: an instruction sequence that does nothing elsewhere. The answer is 0 then.
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

/// For each bit whether it is not set; null where valgrind doesn't know.
inline const unsigned char* read_undefined(const void* data, size_t size, Bytes* room) {
  room->resize(size + 1);
  return ask_valgrind(kMemcheck + 8, data, reinterpret_cast<size_t>(room->data()), size) == 1 ? room->data() : nullptr;
}

}  // namespace be_guard
