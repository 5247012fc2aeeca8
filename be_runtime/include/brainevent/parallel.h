#pragma once

/// \file
/// `BE::parallel_for`, on the threads that XLA has for the CPU.

#include <stdint.h>

#include "brainevent/detail/entry.h"

/// See native/thread_pool.h.
BE_INTERNAL_HIDDEN XLA_FFI_CallFrame* be_enter(XLA_FFI_CallFrame*) noexcept;
BE_INTERNAL_HIDDEN void be_run_chunks(int64_t, int64_t, const void*, void (*)(const void*, int64_t, int64_t));

namespace BE {

namespace detail {

/// Tells which call this thread runs, whose pool is XLA's.
class EnteredCall {
 public:
  explicit EnteredCall(XLA_FFI_CallFrame* be_frame) noexcept : be_before_(be_enter(be_frame)) {}
  ~EnteredCall() { be_enter(be_before_); }
  EnteredCall(const EnteredCall&) = delete;
  EnteredCall& operator=(const EnteredCall&) = delete;

 private:
  XLA_FFI_CallFrame* be_before_;
};

}  // namespace detail

/// Calls `f(begin, end)` for parts of 0 to `n` of at least `grain` each, which together are all of it, on several threads
/// at once. Returns when all are done.
///
/// A part should take 5 us or longer. With `n <= grain`, on a GPU, in a constructor of a State, and wherever XLA gives no
/// threads, `f(0, n)` is called here. Parts may call it again. The first exception of a part comes back here; parts that
/// have not begun are left out then.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
#if defined(__CUDACC__)
  static_cast<void>(grain);
  f(int64_t{0}, n);
#else
  if (n <= grain) return static_cast<void>(f(int64_t{0}, n));
  be_run_chunks(n, grain, &f, [](const void* body, int64_t begin, int64_t end) {
    (*static_cast<const F*>(body))(begin, end);
  });
#endif
}

}  // namespace BE

#if !defined(__CUDACC__)
#undef BE_INTERNAL_ENTER
#define BE_INTERNAL_ENTER(be_call) const ::BE::detail::EnteredCall be_entered(be_call);
#endif
