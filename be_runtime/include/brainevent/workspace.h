#pragma once

/// \file
/// Memory that an entry point needs during its call.

#include "brainevent/tensor.h"

struct XLA_FFI_CallFrame;

namespace BE::detail {
class AskedMemory;
}

/// See native/asked_memory.h.
BE_INTERNAL_HIDDEN void* be_allocate(BE::detail::AskedMemory*, int64_t, size_t);
BE_INTERNAL_HIDDEN void* be_refuse_data();
BE_INTERNAL_HIDDEN void be_open_memory(BE::detail::AskedMemory&) noexcept;
BE_INTERNAL_HIDDEN void be_close_memory(BE::detail::AskedMemory&) noexcept;
BE_INTERNAL_HIDDEN void be_refuse_size(size_t, size_t);

namespace BE {

/// Scratch memory: `scratch[n*4]` in an arg_spec declares a number of bytes; a bare `scratch` is allocated while
/// the kernel runs.
///
/// Ownership: none. The memory belongs to the call, is not initialized, and is valid until the entry point returns and,
/// on the GPU, until the work on its stream is done. A copy is the same memory.
///
/// Declared memory is planned by XLA, costs next to nothing, and may be used by a CUDA graph. `jax.vmap` with
/// `broadcast_all` multiplies its size by the size of the batch, as it does for results.
class Workspace {
 public:
  /// Alignment of declared memory and, on the CPU, of allocated memory. Allocated memory of a GPU is aligned to 16.
  static constexpr size_t kAlignment = 64;

  explicit Workspace(Tensor& memory) noexcept : data_(memory.data()), size_(memory.nbytes()), asked_(nullptr) {}
  explicit Workspace(detail::AskedMemory& memory) noexcept : data_(nullptr), size_(0), asked_(&memory) {}

  /// Return the declared memory. Throw `CheckError` if none is declared.
  void* data() const { return __builtin_expect(asked_ != nullptr, 0) ? be_refuse_data() : data_; }

  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }

  /// Return the bytes of the declared memory; 0 if none is declared.
  size_t size() const noexcept { return size_; }

  /// Allocate more bytes; null for 0. Within `BE::parallel_for` they are valid until the body returns.
  ///
  /// Throw `CheckError` for an invalid size, or if memory is declared. A kernel that calls it is not recorded
  /// into CUDA graphs, because a replay would use memory that is no longer valid.
  void* allocate(int64_t bytes) const { return be_allocate(asked_, bytes, 1); }

  /// Allocate room for `count` objects.
  template <class T>
  T* allocate_as(int64_t count) const {
    return static_cast<T*>(be_allocate(asked_, count, sizeof(T)));
  }

 private:
  void* data_;
  size_t size_;
  detail::AskedMemory* asked_;
};

namespace detail {

/// The memory that a call has allocated, until it ends. On the CPU it is a place in the thread's own memory.
class AskedMemory {
 public:
  /// \param frame  XLA's, whose device has the memory; null on the CPU
  explicit AskedMemory(XLA_FFI_CallFrame* frame) noexcept : be_frame(frame) { be_open_memory(*this); }
  ~AskedMemory() { be_close_memory(*this); }
  AskedMemory& operator=(AskedMemory&&) = delete;

  XLA_FFI_CallFrame* be_frame;
  /// The thread's memory, and how far it was used before; on the GPU the last piece that was allocated.
  void* be_arena = nullptr;
  void* be_last = nullptr;
  size_t be_used = 0;
};

/// Return whether all results are empty.
inline bool be_are_empty(const Tensor* be_results, int be_count) noexcept {
  for (int i = 0; i < be_count; ++i)
    if (be_results[i].numel() != 0) return false;
  return true;
}

/// Check the size of declared memory. Under `jax.vmap` it may be larger.
inline void be_require(const Workspace& be_memory, size_t be_declared) {
  if (__builtin_expect(be_memory.size() < be_declared, 0)) be_refuse_size(be_memory.size(), be_declared);
}

}  // namespace detail
}  // namespace BE
