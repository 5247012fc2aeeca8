#pragma once

/// \file
/// BE::parallel_for on XLA's thread pool.
///
/// It can't deadlock: the caller takes chunks itself, and waits only for chunks that another thread is running already,
/// never for a task to start. A task that starts late finds no chunk. So a chunk may call this function
/// again, and the caller may be one of the pool's threads.

#include <sched.h>

#include "asked_memory.h"
#include "brainevent/parallel.h"

namespace BE::detail {
namespace {

thread_local const Entered* entered = nullptr;

/// Return the number of threads of the pool; 1 if there is none. A result takes a few nanoseconds, an error longer.
inline int64_t pool_threads(const XLA_FFI_CallFrame* frame) noexcept {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args{sizeof(args), nullptr, frame->ctx, &threads};
  XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&args);
  if (__builtin_expect(error == nullptr, 1)) return threads;
  be_xla::drop_error(frame, error);
  return 1;
}

/// One call of parallel_for. On the heap, since tasks may outlive it.
struct Job {
  Entered entered;
  int64_t n, size, chunks;
  void* body;
  void (*call)(void*, int64_t, int64_t, bool*);
  int owners;
  int64_t next = 0, done = 0;
  bool failed = false;  // set by the first call that throws

  void run() noexcept {
    for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < chunks;) {
      if (!__atomic_load_n(&failed, __ATOMIC_RELAXED)) {
        const AskedMemory memory(nullptr);  // returns this thread's memory to its earlier state
        call(body, i * size, i + 1 < chunks ? (i + 1) * size : n, &failed);
      }
      __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
    }
  }

  /// Run on a thread of the pool.
  static void start(void* data) noexcept {
    Job* job = static_cast<Job*>(data);
    const Entered* before = be_enter(&job->entered);
    job->run();
    be_enter(before);
    job->drop();
  }

  void drop() noexcept {
    if (__atomic_sub_fetch(&owners, 1, __ATOMIC_ACQ_REL) == 0) delete this;
  }

  void schedule() noexcept {
    XLA_FFI_ThreadPool_Schedule_Args args{sizeof(args), nullptr, entered.be_frame->ctx, start, this};
    XLA_FFI_Error* error_of_pool = entered.be_frame->api->XLA_FFI_ThreadPool_Schedule(&args);
    if (error_of_pool == nullptr) return;
    be_xla::drop_error(entered.be_frame, error_of_pool);
    drop();
  }

  /// Wait for the chunks that other threads run: spin for some microseconds, then yield the core.
  void wait() const noexcept {
    for (int spins = 0; __atomic_load_n(&done, __ATOMIC_ACQUIRE) != chunks; ++spins) {
      if (spins > 2000) {
        sched_yield();
        continue;
      }
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }
};

/// More chunks for a thread don't improve the balance, and each takes 0.1 us.
constexpr int64_t kMostChunks = 64;

inline int64_t divided_up(int64_t n, int64_t by) noexcept { return n / by + (n % by != 0); }

}  // namespace
}  // namespace BE::detail

const Entered* be_enter(const Entered* call) noexcept {
  const Entered* before = entered;
  entered = call;
  return before;
}

void be_run_chunks(int64_t n, int64_t grain, void* body, void (*call)(void*, int64_t, int64_t, bool*)) {
  const Entered* const call_of = entered;
  int64_t threads = call_of == nullptr ? 1 : pool_threads(call_of->be_frame);
  const int64_t finest = divided_up(n, threads * kMostChunks);
  const int64_t size = grain > finest ? grain : finest;
  const int64_t chunks = divided_up(n, size);
  if (threads > chunks) threads = chunks;
  bool failed = false;
  if (threads <= 1) return call(body, 0, n, &failed);
  Job* job = new Job{*call_of, n, size, chunks, body, call, static_cast<int>(threads)};
  for (int64_t t = 1; t < threads; ++t) job->schedule();
  job->run();
  job->wait();
  job->drop();
}
