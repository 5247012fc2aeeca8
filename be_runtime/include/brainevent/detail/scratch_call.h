#pragma once

/// \file
/// What generated code does around a call with scratch memory.

#include "brainevent/detail/call.h"
#include "brainevent/workspace.h"

/// See native/asked_memory.h.
BE_INTERNAL_HIDDEN void be_open_memory(BE::detail::AskedMemory&) noexcept;
BE_INTERNAL_HIDDEN void be_close_memory(BE::detail::AskedMemory&) noexcept;
BE_INTERNAL_HIDDEN void be_refuse_size(size_t, size_t);

namespace BE::detail {

/// What a call has allocated, until it ends. On the CPU that is a place in the thread's own memory.
class AskedMemory {
 public:
  /// \param frame  XLA's, whose device has the memory; null on the CPU
  explicit AskedMemory(XLA_FFI_CallFrame* frame) noexcept : be_frame(frame) { be_open_memory(*this); }
  ~AskedMemory() { be_close_memory(*this); }
  AskedMemory(const AskedMemory&) = delete;
  AskedMemory& operator=(const AskedMemory&) = delete;

  XLA_FFI_CallFrame* be_frame;
  /// The thread's memory, and how far it was used before; on the GPU the last piece that was allocated.
  void* be_arena = nullptr;
  void* be_last = nullptr;
  size_t be_used = 0;
};

/// Whether there is nothing to compute.
inline bool be_are_empty(const Tensor* be_results, int be_count) noexcept {
  for (int i = 0; i < be_count; ++i)
    if (be_results[i].numel() != 0) return false;
  return true;
}

/// Checks the size of declared memory. Under `jax.vmap` it may be larger.
inline void be_require(const Workspace& be_memory, size_t be_declared) {
  if (__builtin_expect(be_memory.size() < be_declared, 0)) be_refuse_size(be_memory.size(), be_declared);
}

}  // namespace BE::detail
