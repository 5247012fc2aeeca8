/// \file
/// Handlers in front of handlers: they check what a kernel does to its arrays, and they can be pointed at other code.
///
/// be_runtime/load/guarded.py puts them in front of registered targets. A call is checked if it has the attribute
/// `be_check`, or if its slot has a text for calls without; all others pass through.

#include "guard/checked_call.h"

namespace be_guard {
namespace {

XLA_FFI_Error* execute(Slot& slot, XLA_FFI_CallFrame* frame) {
  const Code* code = slot.code.load(std::memory_order_acquire);
  if (be_xla::Metadata* metadata = be_xla::find_metadata(frame)) return answer(slot, code->execute, frame, metadata);
  slot.executed.fetch_add(1, std::memory_order_relaxed);
  const XLA_FFI_ByteSpan* asked = find_check(frame);
  const std::string* usual = slot.check.load(std::memory_order_acquire);
  if (asked == nullptr && usual == nullptr) return code->execute(frame);
  Check check = parse_check(asked == nullptr ? *usual : std::string(asked->ptr, asked->len));
  HostMemory memory;
  return CheckedCall(frame, std::move(check), &memory, "cpu").run(code->execute);
}

XLA_FFI_Error* instantiate(Slot& slot, XLA_FFI_CallFrame* frame) {
  const Code* code = slot.code.load(std::memory_order_acquire);
  if (be_xla::Metadata* metadata = be_xla::find_metadata(frame)) return answer(slot, code->instantiate, frame, metadata);
  slot.instantiated.fetch_add(1, std::memory_order_relaxed);
  if (code->instantiate == nullptr) return nullptr;
  return code->instantiate(OwnFrame(frame, {}).get());
}

template <int K>
XLA_FFI_Error* execute_at(XLA_FFI_CallFrame* frame) {
  return execute(slots[K], frame);
}

template <int K>
XLA_FFI_Error* instantiate_at(XLA_FFI_CallFrame* frame) {
  return instantiate(slots[K], frame);
}

template <int... K>
Code handlers_of(int64_t index, std::integer_sequence<int, K...>) {
  static constexpr Code kHandlers[] = {{execute_at<K>, instantiate_at<K>}...};
  return kHandlers[index];
}

}  // namespace
}  // namespace be_guard

using namespace be_guard;

#define BE_EXPORT extern "C" __attribute__((visibility("default")))

/// Puts a new slot in front of code.
///
/// \param instantiate  null for code without that stage
/// \param traits  the code's traits that the slot may have too: 0 for code that is checked, since its calls wait
/// \return the slot's index; -1 when the library has none left
BE_EXPORT int64_t be_guard_slot(const char* label, void* execute, void* instantiate, uint32_t traits, int32_t is_gpu) {
  const int64_t index = slot_count.fetch_add(1);
  if (index >= kSlotCount) return -1;
  Slot& slot = slots[index];
  slot.label = label;
  slot.traits = traits;
  slot.is_gpu = is_gpu != 0;
  slot.code.store(new Code{reinterpret_cast<Handler*>(execute), reinterpret_cast<Handler*>(instantiate)},
                  std::memory_order_release);
  return index;
}

/// The handlers of a slot, for `jax.ffi.register_ffi_target`.
BE_EXPORT void be_guard_handlers(int64_t index, void** execute, void** instantiate) {
  const Code code = handlers_of(index, std::make_integer_sequence<int, kSlotCount>());
  *execute = reinterpret_cast<void*>(code.execute);
  *instantiate = reinterpret_cast<void*>(code.instantiate);
}

/// Points a slot at other code, which calls from now on run.
BE_EXPORT void be_guard_point(int64_t index, void* execute, void* instantiate) {
  slots[index].code.store(new Code{reinterpret_cast<Handler*>(execute), reinterpret_cast<Handler*>(instantiate)},
                          std::memory_order_release);
}

/// How often XLA has compiled or run a call of a slot.
BE_EXPORT int64_t be_guard_used(int64_t index) { return slots[index].instantiated + slots[index].executed; }

/// Checks the calls of a slot that have no attribute `be_check`, as this text says; null ends it.
BE_EXPORT void be_guard_check(int64_t index, const char* text) {
  slots[index].check.store(text == nullptr ? nullptr : new std::string(text), std::memory_order_release);
}

/// Takes findings, as lines of JSON; see `FindingQueue::take`.
BE_EXPORT int64_t be_guard_take(char* room, int64_t size) { return findings().take(room, size); }

/// Makes copies without bytes around them, for a sanitizer that sees the ends of each.
BE_EXPORT void be_guard_exact(int32_t is_exact) { exact_blocks = is_exact != 0; }
