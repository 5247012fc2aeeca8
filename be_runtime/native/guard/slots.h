#pragma once

/// \file
/// Slots: handlers of a fixed number, each in front of a handler whose calls may be checked.
///
/// XLA calls a handler with nothing but the frame, so each has a function of its own. The frame's `api` and `ctx` stay
/// those of XLA, so that states of the code behind it keep their types.

#include <atomic>
#include <utility>

#include "check.h"

namespace be_guard {

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

constexpr int kSlotCount = 256;

struct Slot {
  Handler* execute = nullptr;
  Handler* instantiate = nullptr;
  bool is_gpu = false;
  bool has_usual = false;
  Check usual;                            ///< for calls without the attribute `be_check`
  std::atomic<uint32_t> inner_traits{0};  ///< what the code says of itself
};

inline Slot* const slots = new Slot[kSlotCount];  // calls may run while the process ends
inline std::atomic<int64_t> slot_count{0};

/// Answers XLA's question about a handler as the code behind it does, but for the traits: a checked call waits, and so
/// can't be recorded.
inline XLA_FFI_Error* answer(Slot& slot, Handler* inner, XLA_FFI_CallFrame* frame, be_xla::Metadata* metadata) {
  XLA_FFI_Error* error = inner(frame);
  if (inner == slot.execute) slot.inner_traits.store(metadata->traits, std::memory_order_relaxed);
  metadata->traits = 0;
  return error;
}

}  // namespace be_guard
