#pragma once

/// \file
/// The handler of an entry point that is compiled with it, where g++ sees the whole program: the number of tensors is
/// known then, and what the entry point doesn't ask of them isn't read. An extent is memory that XLA keeps for each
/// call of a program, so reading all of them takes longer than everything else that a handler does.
///
/// It does what `be_handle` does, for calls that are as the entry point wants them; the others go to native/handler.cc.

#include "brainevent/detail/xla_buffers.h"

namespace BE::detail {

/// The numbers from 0 on. Packs, since g++ takes twice as long for loops that it has to unroll.
template <int...>
struct Indices {};

/// One call. Both functions that XLA calls end in it, so that the entry point is compiled once.
template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&), int... kArg, int... kRet>
__attribute__((noinline)) XLA_FFI_Error* run(XLA_FFI_CallFrame* frame, Indices<kArg...>, Indices<kRet...>) noexcept {
  constexpr int kArgs = kEntry.arg_count, kRets = kEntry.ret_count, kAttrs = kEntry.attr_count;
  void *const *args = frame->args.args, *const *rets = frame->rets.rets;
  if (__builtin_expect(frame->args.size != kArgs || frame->rets.size != kRets, 0)) return be_refuse(frame, kEntry);
  if (__builtin_expect(!((holds(args[kArg]) & ... & true) & (holds(rets[kRet]) & ... & true)), 0))
    return be_refuse(frame, kEntry);
  const void* values[kAttrs + 1];
  const bool matched = kAttrs == 0 ? frame->attrs.size == 0 : be_match_attrs(frame, kEntry, values);
  if (__builtin_expect(!matched, 0)) return be_refuse(frame, kEntry);

  Tensor tensors[kArgs + kRets + 1] = {view(args[kArg])..., view(rets[kRet])...};
  if ((tensors[kArgs + kRet].numel() | ... | 0) == 0) return nullptr;
  try {
    kTrampoline(Call{tensors, tensors + kArgs, values, nullptr});
    return nullptr;
  } catch (...) {
    return be_caught(frame, kEntry);
  }
}

template <const EntrySpec& kEntry, void (*kTrampoline)(const Call&)>
inline XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept {
  if (__builtin_expect(frame->extension_start != nullptr, 0) && be_answer(frame, traits)) return nullptr;
  return run<kEntry, kTrampoline>(frame, Indices<__integer_pack(kEntry.arg_count)...>{},
                                  Indices<__integer_pack(kEntry.ret_count)...>{});
}

}  // namespace BE::detail
