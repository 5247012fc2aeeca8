/// \file
/// Handlers in front of handlers: they check what a kernel does to its arrays, and they can be pointed at other code.
///
/// be_runtime/load/guarded.py puts them in front of registered targets. A call is checked if it has the attribute
/// `be_check`, or if its slot has a text for calls without; all others pass through.

#include <exception>

#include "guard/breadcrumbs.h"
#include "guard/checked_call.h"
#include "guard/device_memory.h"

namespace be_guard {
namespace {

XLA_FFI_Error* execute_on_host(XLA_FFI_CallFrame* frame, const Check& check, Handler* inner) {
  HostMemory memory;
  return CheckedCall(frame, check, &memory, nullptr, "cpu", false).run(inner);
}

/// Runs a call of a GPU without its checks, and says why.
XLA_FFI_Error* run_plainly(XLA_FFI_CallFrame* frame, const Check& check, Handler* inner, const std::string& reason) {
  Report(check, "").note(" was not checked: " + reason);
  return inner(OwnFrame(frame, arrays_of(frame, check.hidden)).get());
}

XLA_FFI_Error* execute_on_device(Slot& slot, XLA_FFI_CallFrame* frame, const Check& check, Handler* inner) {
  const DeviceDriver& cuda = device_driver();
  if (!cuda.problem.empty()) return run_plainly(frame, check, inner, cuda.problem);
  XLA_FFI_Stream_Get_Args stream{};
  stream.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  stream.ctx = frame->ctx;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&stream)) return error;
  int number = 0, is_capturing = 0;
  if (cuda.cuCtxGetDevice(&number) != 0 || number < 0 || number >= kDeviceCount)
    return run_plainly(frame, check, inner, "no CUDA context is current");
  if (cuda.cuStreamIsCapturing(stream.stream, &is_capturing) == 0 && is_capturing != 0)
    return run_plainly(frame, check, inner, "its stream is being recorded");
  Device& device = devices[number];
  const std::lock_guard<std::mutex> alone(device.mutex);
  if (!device.lost_by.empty())
    return be_xla::fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION,
                        "%s can't run: the GPU's context was lost by %s\nhint: restart the process", check.label.c_str(),
                        device.lost_by.c_str());
  DeviceMemory memory(frame, stream.stream, cuda);
  const bool can_hold = slot.inner_traits.load() & XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  return CheckedCall(frame, check, &memory, &device, "cuda:" + std::to_string(number), can_hold).run(inner);
}

XLA_FFI_Error* execute(Slot& slot, XLA_FFI_CallFrame* frame) {
  const Code* code = slot.code.load(std::memory_order_acquire);
  if (be_xla::Metadata* metadata = be_xla::find_metadata(frame)) return answer(slot, code->execute, frame, metadata);
  slot.executed.fetch_add(1, std::memory_order_relaxed);
  const XLA_FFI_ByteSpan* asked = find_check(frame);
  const std::string* usual = slot.check.load(std::memory_order_acquire);
  if (asked == nullptr && usual == nullptr) return code->execute(frame);
  try {
    Check check = parse_check(asked == nullptr ? *usual : std::string(asked->ptr, asked->len));
    if (check.label.empty()) check.label = slot.label;
    const Breadcrumb crumb(check.label, check.caller);
    return slot.is_gpu ? execute_on_device(slot, frame, check, code->execute)
                       : execute_on_host(frame, check, code->execute);
  } catch (const std::exception& error) {
    return be_xla::fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s could not be checked: %s", slot.label.c_str(),
                        error.what());
  }
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

/// Writes from now on to a file which checked calls are running; see guard/breadcrumbs.h. 0 when it can't be used.
BE_EXPORT int32_t be_guard_breadcrumbs(const char* path) { return open_breadcrumbs(path); }
