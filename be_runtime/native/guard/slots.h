#pragma once

/// \file
/// Slots: handlers that XLA knows for good, in front of code that may be checked, and exchanged.
///
/// XLA keeps the address of a handler for the life of the process. A slot is such an address, one of a fixed number in
/// a library, and passes each call on to the code that it points at. The frame's `api` and `ctx` stay those of XLA, so
/// that states of the code behind it keep their types.

#include <atomic>
#include <string>
#include <utility>

#include "../xla_call.h"

namespace be_guard {

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

constexpr int kSlotCount = 256;

/// The code behind a slot. It is never freed: a call in another thread may still be in it.
struct Code {
  Handler* execute;
  Handler* instantiate;
};

struct Slot {
  std::atomic<const Code*> code{nullptr};
  std::atomic<const std::string*> check{nullptr};  ///< for calls without the attribute `be_check`; null: unchecked
  std::atomic<uint32_t> inner_traits{0};           ///< what the code says of itself
  std::atomic<int64_t> instantiated{0}, executed{0};
  std::string label;
  uint32_t traits = 0;  ///< those of the code's traits that the slot has too
  bool is_gpu = false;
};

inline Slot* const slots = new Slot[kSlotCount];  // calls may run while the process ends
inline std::atomic<int64_t> slot_count{0};

/// Answers XLA's question about a handler as the code behind the slot does, with no more traits than the slot has.
inline XLA_FFI_Error* answer(Slot& slot, Handler* inner, XLA_FFI_CallFrame* frame, be_xla::Metadata* metadata) {
  if (inner == nullptr) {
    be_xla::answer_metadata(frame, 0);
    return nullptr;
  }
  XLA_FFI_Error* error = inner(frame);
  slot.inner_traits.store(metadata->traits, std::memory_order_relaxed);
  metadata->traits &= slot.traits;
  return error;
}

}  // namespace be_guard
