#pragma once

/// \file
/// The stack below a call, whose bytes are what a kernel finds in a local array that it never set.

#include <alloca.h>
#include <pthread.h>

#include <cstddef>
#include <cstring>

namespace be_guard {

/// The end of this thread's stack; null where it is not known.
inline char* find_stack_end() {
  pthread_attr_t attributes;
  void* end = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  pthread_attr_getstack(&attributes, &end, &size);
  pthread_attr_destroy(&attributes);
  return static_cast<char*>(end);
}

/// Fills the memory that the functions called next have for their stack, up to a limit.
__attribute__((noinline)) inline void fill_stack(unsigned char byte) {
  constexpr size_t kMost = size_t{1} << 20, kLeft = size_t{128} << 10;
  static thread_local char* const end = find_stack_end();
  const char* const here = static_cast<char*>(__builtin_frame_address(0));
  if (end == nullptr || static_cast<size_t>(here - end) < 2 * kLeft) return;
  const size_t room = static_cast<size_t>(here - end) - kLeft;
  const size_t size = room < kMost ? room : kMost;
  void* const at = alloca(size);
  memset(at, byte, size);
  asm volatile("" : : "r"(at) : "memory");  // which keeps the bytes
}

/// Calls a function whose stack begins below what `fill_stack` itself has used.
template <class Function, class Argument>
__attribute__((noinline)) auto call_lower(Function* function, Argument* argument) {
  char room[512];
  asm volatile("" : : "r"(room) : "memory");
  const auto result = function(argument);
  asm volatile("" : : "r"(room) : "memory");
  return result;
}

}  // namespace be_guard
