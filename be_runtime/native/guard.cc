/// \file
/// Handlers that wrap other handlers, and check how a kernel uses its arrays.
///
/// be_runtime/load/checked_mode.py wraps the handlers of registered targets. A call is checked if it has the attribute
/// `be_check`, or if its slot checks calls without it; other calls pass through.

#include <exception>

#include "guard/breadcrumbs.h"
#include "guard/checked_call.h"

namespace be_guard {
namespace {

/// A GPU of the process: one checked call at a time runs on it, and none after a fault.
struct Device {
  std::mutex mutex;
  std::string lost_by;  ///< the call whose fault has ended the GPU's context; empty while it works
};

constexpr int kDeviceCount = 64;
Device* const devices = new Device[kDeviceCount];  // calls may run while the process ends

constexpr int kSlotCount = 256;

struct Slot {
  Handler* execute = nullptr;
  Handler* instantiate = nullptr;
  bool is_gpu = false;
  bool has_usual = false;
  Check usual;                            ///< for calls without the attribute `be_check`
  std::atomic<uint32_t> inner_traits{0};  ///< the traits that the code claims
};

Slot* const slots = new Slot[kSlotCount];  // calls may run while the process ends
std::atomic<int64_t> slot_count{0};

/// Answer XLA's metadata query like the wrapped handler, but without traits: a checked call waits, and so can't be
/// recorded.
XLA_FFI_Error* answer(Slot& slot, Handler* inner, XLA_FFI_CallFrame* frame, be_xla::Metadata* metadata) {
  XLA_FFI_Error* error = inner(frame);
  if (inner == slot.execute) slot.inner_traits.store(metadata->traits, std::memory_order_relaxed);
  metadata->traits = 0;
  return error;
}

XLA_FFI_Error* execute_on_host(XLA_FFI_CallFrame* frame, const Check& check, Handler* inner) {
  HostMemory memory;
  return CheckedCall(frame, check, &memory).run(inner);
}

/// Run a call of a GPU without its checks, and note the reason.
XLA_FFI_Error* run_plainly(XLA_FFI_CallFrame* frame, const Check& check, Handler* inner, const std::string& reason) {
  Report(check, "").note(" was not checked: " + reason);
  return inner(OwnFrame(frame, arrays_of(frame, check)).get());
}

XLA_FFI_Error* execute_on_device(Slot& slot, XLA_FFI_CallFrame* frame, const Check& check) {
  Handler* const inner = slot.execute;
  const DeviceDriver& cuda = device_driver();
  if (!cuda.problem.empty()) return run_plainly(frame, check, inner, cuda.problem);
  Stream stream = nullptr;
  if (XLA_FFI_Error* error = be_xla::get_stream(frame, &stream)) return error;
  int number = 0, is_capturing = 0;
  if (cuda.cuCtxGetDevice(&number) != 0 || number < 0 || number >= kDeviceCount)
    return run_plainly(frame, check, inner, "no CUDA context is current");
  if (cuda.cuStreamIsCapturing(stream, &is_capturing) == 0 && is_capturing != 0)
    return run_plainly(frame, check, inner, "its stream is being recorded");
  Device& device = devices[number];
  const std::lock_guard<std::mutex> alone(device.mutex);
  if (!device.lost_by.empty())
    return be_xla::fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION,
                        "%s can't run: the GPU's context was lost by %s\nhint: restart the process",
                        check.label.c_str(), device.lost_by.c_str());
  const bool can_hold = slot.inner_traits.load() & XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  DeviceMemory memory(frame, stream, "cuda:" + std::to_string(number), &device.lost_by, can_hold);
  return CheckedCall(frame, check, &memory).run(inner);
}

XLA_FFI_Error* execute(Slot& slot, XLA_FFI_CallFrame* frame) {
  if (be_xla::Metadata* metadata = be_xla::find_metadata(frame)) return answer(slot, slot.execute, frame, metadata);
  const XLA_FFI_ByteSpan* asked = find_check(frame);
  if (asked == nullptr && !slot.has_usual) return slot.execute(frame);
  try {
    const Check check = asked == nullptr ? slot.usual : parse_check(std::string(asked->ptr, asked->len));
    const Breadcrumb crumb(check.label, check.caller);
    const CallOrder order;
    return slot.is_gpu ? execute_on_device(slot, frame, check) : execute_on_host(frame, check, slot.execute);
  } catch (const std::exception& error) {
    return be_xla::fail(frame, XLA_FFI_Error_Code_INTERNAL, "a call could not be checked: %s", error.what());
  }
}

XLA_FFI_Error* instantiate(Slot& slot, XLA_FFI_CallFrame* frame) {
  if (be_xla::Metadata* metadata = be_xla::find_metadata(frame)) return answer(slot, slot.instantiate, frame, metadata);
  const CallOrder order;
  return slot.instantiate(OwnFrame(frame, {}).get());
}

template <int K, XLA_FFI_Error* (*Stage)(Slot&, XLA_FFI_CallFrame*)>
XLA_FFI_Error* run_at(XLA_FFI_CallFrame* frame) { return Stage(slots[K], frame); }

/// Return the two handlers of a slot, execute and instantiate.
template <int... K>
Handler* const* handlers_of(int64_t index, std::integer_sequence<int, K...>) {
  static constexpr Handler* kHandlers[][2] = {{run_at<K, execute>, run_at<K, instantiate>}...};
  return kHandlers[index];
}

}  // namespace
}  // namespace be_guard

using namespace be_guard;

/// Make a slot that wraps handlers. The slot lives as long as the process.
///
/// \param instantiate  null for a target without this stage
/// \param usual  the checks of calls without the attribute `be_check`; null: none
/// \param handlers  room for the slot's own two, execute and instantiate
/// \return 0 if the library has no slot left
BE_EXPORT int32_t be_guard_slot(void* execute, void* instantiate, int32_t is_gpu, const char* usual, void** handlers) {
  const int64_t index = slot_count.fetch_add(1);
  if (index >= kSlotCount) return 0;
  Slot& slot = slots[index];
  slot.execute = reinterpret_cast<Handler*>(execute);
  slot.instantiate = reinterpret_cast<Handler*>(instantiate);
  slot.is_gpu = is_gpu != 0;
  slot.has_usual = usual != nullptr;
  if (slot.has_usual) slot.usual = parse_check(usual);
  Handler* const* own = handlers_of(index, std::make_integer_sequence<int, kSlotCount>());
  for (int stage = 0; stage < 2; ++stage) handlers[stage] = reinterpret_cast<void*>(own[stage]);
  return 1;
}

/// Take findings, as lines of JSON; see `FindingQueue::take`.
BE_EXPORT int64_t be_guard_take(char* room, int64_t size) { return findings.take(room, size); }

/// Copy arrays without bytes around them, for a sanitizer that detects accesses past their ends.
BE_EXPORT void be_guard_exact(int32_t is_exact) { exact_blocks = is_exact != 0; }

/// Print the checked calls in which the process dies on standard error.
BE_EXPORT void be_guard_name_faults() { be_faults::install(describe_calls); }

/// Record the running checked calls in a file from now on; see guard/breadcrumbs.h. 0 if the file can't be used.
BE_EXPORT int32_t be_guard_breadcrumbs(const char* path) { return open_breadcrumbs(path); }
