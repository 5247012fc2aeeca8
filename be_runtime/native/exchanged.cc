/// \file
/// Handlers that lead to code which may be exchanged, for `be_runtime.watch`: XLA keeps a name's handler for the life of
/// the process, so names are registered with these.

#include <atomic>
#include <utility>

#include "xla_call.h"

namespace {

constexpr int kCount = 256;

std::atomic<XLA_FFI_Handler*> code[kCount];

template <int index>
XLA_FFI_Error* call(XLA_FFI_CallFrame* frame) {
  return code[index].load(std::memory_order_acquire)(frame);
}

template <int... indices>
XLA_FFI_Handler* handler_at(std::integer_sequence<int, indices...>, int index) {
  static constexpr XLA_FFI_Handler* handlers[] = {call<indices>...};
  return handlers[index];
}

/// What a handler answers when XLA asks for its traits, as it does when a name is registered.
uint32_t traits_of(XLA_FFI_Handler* handler) {
  be_xla::Metadata metadata{};
  metadata.struct_size = sizeof(metadata);
  be_xla::MetadataExtension question{{sizeof(question), XLA_FFI_Extension_Metadata, nullptr}, &metadata};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = sizeof(frame);
  frame.extension_start = reinterpret_cast<decltype(frame.extension_start)>(&question);
  handler(&frame);
  return metadata.traits;
}

}  // namespace

#define BE_EXPORT extern "C" __attribute__((visibility("default")))

/// The number of handlers that there are.
BE_EXPORT int be_exchanged_count() { return kCount; }

/// Leads a handler to some code and returns the handler; null if XLA knows it with other traits.
BE_EXPORT XLA_FFI_Handler* be_exchange(int index, XLA_FFI_Handler* to) {
  XLA_FFI_Handler* const before = code[index].load();
  if (before != nullptr && traits_of(before) != traits_of(to)) return nullptr;
  code[index].store(to, std::memory_order_release);
  return handler_at(std::make_integer_sequence<int, kCount>(), index);
}
