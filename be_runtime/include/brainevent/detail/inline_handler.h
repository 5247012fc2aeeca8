#pragma once

/// \file
/// The handler of an entry point that is compiled with it, if g++ compiles the whole program: then the number of
/// tensors is constant, and properties that the entry point doesn't use aren't read. An extent is memory that XLA keeps
/// for each call of a program, so reading all of them takes longer than everything else that a handler does.
///
/// It does the work of `be_handle` for valid calls; other calls go to native/handler.cc.

#include "brainevent/detail/xla_frame.h"

// An author's code may read extents that the compiler can't prove to exist.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace BE::detail {

/// The numbers from 0 on. Packs, since g++ takes twice as long for loops that it has to unroll.
template <int...>
struct Indices {};

/// One call. Both functions that XLA calls end in it, so that the entry point is compiled once, and it is on the stack
/// while the entry point runs.
template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&)>
XLA_FFI_Error* be_run(XLA_FFI_CallFrame* be_call) noexcept;

template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&), int... kArg, int... kRet>
inline __attribute__((always_inline)) XLA_FFI_Error* be_run_indexed(XLA_FFI_CallFrame* be_call, Indices<kArg...>,
                                                                    Indices<kRet...>) noexcept {
  constexpr size_t kArgs = sizeof...(kArg), kTensors = kArgs + sizeof...(kRet), kAttrs = kEntry.attr_count;
  const XlaFrame* be_frame = reinterpret_cast<const XlaFrame*>(be_call);
  const XlaBuffer* const* be_args = be_frame->be_args.be_buffers;
  const XlaBuffer* const* be_rets = be_frame->be_rets.be_buffers;
  if (__builtin_expect(be_frame->be_args.be_count != int64_t{kEntry.arg_count}, 0) ||
      __builtin_expect(be_frame->be_rets.be_count != int64_t{kEntry.ret_count}, 0))
    return be_handle_ordered(be_call, kEntry, be_run<kEntry, kTrampoline>);
  if (!((be_holds(be_args[kArg]) && ... && true) && (be_holds(be_rets[kRet]) && ... && true)))
    return be_refuse(be_call, kEntry);
  const void* be_values[kAttrs + 1];
  int64_t be_room[kAttrs + 1];
  const bool be_matched =
      kAttrs == 0 ? be_frame->be_attrs.be_count == 0 : be_match_attrs(be_call, kEntry, be_values, be_room);
  if (__builtin_expect(!be_matched, 0)) return be_refuse(be_call, kEntry);

  Tensor be_tensors[kTensors + 1] = {be_view(be_args[kArg])..., be_view(be_rets[kRet])...};
  if ((be_tensors[kArgs + kRet].numel() | ... | 0) == 0) return nullptr;
  try {
    kTrampoline(Call{be_tensors, be_tensors + kArgs, be_values, nullptr, be_call});
    return nullptr;
  } catch (...) {
    return be_caught(be_call, kEntry);
  }
}

template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&)>
__attribute__((noinline, noclone, section(".text"))) XLA_FFI_Error* be_run(XLA_FFI_CallFrame* be_call) noexcept {
  return be_run_indexed<kEntry, kTrampoline>(be_call, Indices<__integer_pack(kEntry.arg_count)...>{},
                                             Indices<__integer_pack(kEntry.ret_count)...>{});
}

/// The function that XLA calls.
template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&)>
inline XLA_FFI_Error* be_handle_inline(XLA_FFI_CallFrame* be_call, uint32_t be_traits) noexcept {
  const bool be_extended = reinterpret_cast<const XlaFrame*>(be_call)->be_extension != nullptr;
  if (__builtin_expect(be_extended, 0) && be_answer(be_call, be_traits)) return nullptr;
  return be_run<kEntry, kTrampoline>(be_call);
}

}  // namespace BE::detail

#pragma GCC diagnostic pop
