#pragma once

/// \file
/// Errors that XLA returns to us, which are ours to destroy.

#include "ffi_versions.h"

namespace be_xla {

inline __attribute__((cold)) void drop_error(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  XLA_FFI_Error_Destroy_Args args{};
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  frame->api->XLA_FFI_Error_Destroy(&args);
}

/// The message of an error, as long as the error lives.
inline __attribute__((cold)) const char* message_of(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  ErrorArgs args{offsetof(ErrorArgs, code) + sizeof(int), nullptr, error, "", 0};
  function_at<void(ErrorArgs*)>(frame, kGetMessagePlace)(&args);
  return args.message;
}

}  // namespace be_xla
