#pragma once

/// \file
/// `BE::Workspace`, uninitialized memory for one call.

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

/// Scratch memory. In an arg_spec, `scratch[n*4]` declares the number of bytes of memory that XLA provides. A bare
/// `scratch`, without a number of bytes, lets the entry point allocate memory.
///
/// **Ownership.** In a C++ source, the memory is valid until the entry point returns. In a CUDA source, the memory is
/// valid for the work of the call on the stream of the call. A copy of a Workspace refers to the memory of the
/// original.
///
/// **Batches.** One call can compute a whole batch of `jax.vmap` in two ways. If the arrays have one more axis, the
/// declared number of bytes is multiplied by the size of the batch. If the arrays have more elements along a `parallel`
/// axis, the number of bytes is computed with the larger extent of this axis.
class Workspace {
 public:
  /// The alignment, in bytes, of declared memory, and of memory allocated on the CPU. Memory allocated on a GPU is
  /// aligned to 16 bytes.
  static constexpr size_t kAlignment = 64;

  explicit Workspace(Tensor& memory) noexcept : data_(memory.data()), size_(memory.nbytes()), asked_(nullptr) {}
  explicit Workspace(detail::AskedMemory& memory) noexcept : data_(nullptr), size_(0), asked_(&memory) {}

  /// Return the address of the declared memory. If the arg_spec contains a bare `scratch`, throw `CheckError`.
  void* data() const { return __builtin_expect(asked_ != nullptr, 0) ? be_refuse_data() : data_; }

  /// Return the address of the declared memory as a `T*`.
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }

  /// Return the number of bytes of the declared memory, or 0 for a bare `scratch`.
  size_t size() const noexcept { return size_; }

  /// Allocate memory, and return the address. For 0 bytes, the address is null. Memory that the body of a
  /// `BE::parallel_for` allocates is valid until the body returns.
  ///
  /// Throw `CheckError` if the size is negative or greater than 2^47 bytes, or if the arg_spec declares a number of
  /// bytes. If no memory is left, throw a different exception, which inherits from `std::exception`.
  void* allocate(int64_t bytes) const { return be_allocate(asked_, bytes, 1); }

  /// Allocate memory for `count` objects of type `T`; see `allocate`.
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

/// The memory that a call has allocated, until it ends. On the CPU it is a part of the thread's memory.
class AskedMemory {
 public:
  /// \param frame  XLA's frame, whose device has the memory; null on the CPU
  explicit AskedMemory(XLA_FFI_CallFrame* frame) noexcept : be_frame(frame) { be_open_memory(*this); }
  ~AskedMemory() { be_close_memory(*this); }
  AskedMemory& operator=(AskedMemory&&) = delete;

  XLA_FFI_CallFrame* be_frame;
  /// The thread's memory, and its used size before the call; on the GPU, the last allocated piece.
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
