#pragma once

/// \file
/// Errors that XLA returns to us, which are ours to destroy.

#include <stddef.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

namespace be_xla {

inline __attribute__((cold)) void drop_error(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  XLA_FFI_Error_Destroy_Args args{};
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  frame->api->XLA_FFI_Error_Destroy(&args);
}

/// The message of an error, as long as the error lives.
///
/// The function behind XLA_FFI_Error_Create was GetMessage until FFI 0.3 and is GetDetails since. Both write the message
/// at the same place, and the older one takes the longer structure of the newer.
inline __attribute__((cold)) const char* message_of(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  struct {
    size_t struct_size;
    void* extension;
    XLA_FFI_Error* error;
    const char* message;
    int code;
  } args{36, nullptr, error, "", 0};
  constexpr size_t kPlace = offsetof(XLA_FFI_Api, XLA_FFI_Error_Create) + sizeof(void*);
  static_assert(offsetof(XLA_FFI_Api, XLA_FFI_Error_Destroy) == kPlace + sizeof(void*));
  void (*get)(void*);
  memcpy(&get, reinterpret_cast<const char*>(frame->api) + kPlace, sizeof(get));
  get(&args);
  return args.message;
}

}  // namespace be_xla
