#pragma once

/// \file
/// `BE::parallel_for`, a parallel loop on XLA's threads for the CPU.

#include "brainevent/detail/entry.h"

#include <exception>

#if defined(BE_INTERNAL_TSAN)
#include <mutex>
#include <thread>
#include <vector>
#endif

namespace BE::detail {

/// The call for which a thread works; it gives access to XLA's thread pool.
struct Entered {
  XLA_FFI_CallFrame* be_frame;
  const char* be_kernel;
};

}  // namespace BE::detail

/// See native/thread_pool.h.
BE_INTERNAL_HIDDEN const BE::detail::Entered* be_enter(const BE::detail::Entered*) noexcept;
BE_INTERNAL_HIDDEN void be_run_chunks(int64_t, int64_t, void*, void (*)(void*, int64_t, int64_t, bool*));

namespace BE {

namespace detail {

/// Guard that records the call that this thread runs.
class EnteredCall {
 public:
  EnteredCall(XLA_FFI_CallFrame* be_frame, const char* be_kernel) noexcept
      : be_here_{be_frame, be_kernel}, be_before_(be_enter(&be_here_)) {}
  ~EnteredCall() { be_enter(be_before_); }
  EnteredCall& operator=(EnteredCall&&) = delete;

 private:
  const Entered be_here_;
  const Entered* const be_before_;
};

#if defined(BE_INTERNAL_TSAN)
/// Run parts on new threads: ThreadSanitizer does not detect how XLA's threads wait for each other. Each thread has a
/// fixed share of the parts, so that two parts that touch one element are always found.
template <class F>
void run_watched(int64_t n, int64_t grain, const Entered* entered, const F& f) {
  constexpr int64_t kThreads = 4, kParts = 64;
  const int64_t finest = n / kParts + 1, size = grain > finest ? grain : finest;
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int64_t first = 0; first < kThreads; ++first)
    threads.emplace_back([&, first] {
      be_enter(entered);
      for (int64_t part = first; part <= (n - 1) / size; part += kThreads) try {
          f(part * size, part < (n - 1) / size ? (part + 1) * size : n);
        } catch (...) {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!error) error = std::current_exception();
        }
    });
  for (std::thread& each : threads) each.join();
  if (error) std::rethrow_exception(error);
}
#endif

}  // namespace detail

/// Divide the indices from 0 to `n - 1` into parts, and call `f(begin, end)` for the indices from `begin` to `end - 1`
/// of each part. Several threads run parts at the same time. Return when all parts are done.
///
/// Each part except the last has at least `grain` indices. Choose `grain` so that `grain` indices take 5 microseconds
/// or longer. The body `f` may call `parallel_for` again. If a part throws an exception, parts that have not begun are
/// skipped, and `parallel_for` throws the first exception.
///
/// In these cases, there is one part, `f(0, n)`, on the calling thread: if `n <= grain`, if XLA has one thread, in a
/// CUDA source, in the constructor of a state, and on a thread that your code started. If `n` is 0, `f` is not called.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
#if defined(__CUDACC__)
  static_cast<void>(grain);
  f(int64_t{0}, n);
#else
  if (n <= grain) return static_cast<void>(f(int64_t{0}, n));
#if defined(BE_INTERNAL_TSAN)
  const detail::Entered* const entered = be_enter(nullptr);
  be_enter(entered);
  if (entered != nullptr) return detail::run_watched(n, grain, entered, f);
#endif
  // Exceptions stay in this unit: the handler may be compiled for another version of the C++ library.
  struct Body {
    const F& f;
    std::exception_ptr error;
  } body{f, nullptr};
  be_run_chunks(n, grain, &body, [](void* data, int64_t begin, int64_t end, bool* failed) noexcept {
    try {
      static_cast<Body*>(data)->f(begin, end);
    } catch (...) {
      if (!__atomic_exchange_n(failed, true, __ATOMIC_RELAXED))
        static_cast<Body*>(data)->error = std::current_exception();
    }
  });
  if (body.error) std::rethrow_exception(body.error);
#endif
}

}  // namespace BE

#if !defined(__CUDACC__)
#undef BE_INTERNAL_ENTER
#define BE_INTERNAL_ENTER(be_call, be_kernel) const ::BE::detail::EnteredCall be_entered(be_call, be_kernel);
#endif
