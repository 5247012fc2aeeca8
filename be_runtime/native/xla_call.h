/// \file
/// Operations on a call frame that all handlers share, on `c_api.h` alone: they answer metadata queries, find buffers,
/// get memory and the stream from XLA, and make errors.

#pragma once

#include "ffi_versions.h"

#ifndef BE_EXPORT
#define BE_EXPORT extern "C" __attribute__((visibility("default")))
#endif

/// Room for `count` objects on the stack of the calling function.
#define BE_STACK_ROOM(type, count) static_cast<type*>(__builtin_alloca(sizeof(type) * static_cast<size_t>(count)))

namespace be_xla {

/// Return the bytes of the UTF-8 character that begins at `at`; 0 if none does.
inline __attribute__((cold)) int utf8_size(const unsigned char* at) noexcept {
  if (at[0] < 0x80) return 1;
  if (at[0] < 0xC2 || at[0] > 0xF4) return 0;
  const int size = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
  for (int i = 1; i < size; ++i)
    if ((at[i] & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and codes beyond Unicode.
  const bool bad = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
                   (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F);
  return bad ? 0 : size;
}

/// Replace bytes that are not UTF-8 by question marks: Python would fail to read the whole message.
inline __attribute__((cold)) void make_utf8(char* text) noexcept {
  for (unsigned char* at = reinterpret_cast<unsigned char*>(text); *at != 0;) {
    const int size = utf8_size(at);
    if (size == 0) *at = '?';
    at += size == 0 ? 1 : size;
  }
}

constexpr XLA_FFI_Error_Code kInvalid = XLA_FFI_Error_Code_INVALID_ARGUMENT;

/// Make an XLA error from a printf format. XLA copies the text.
inline __attribute__((cold, format(printf, 3, 4))) XLA_FFI_Error* fail(const XLA_FFI_CallFrame* frame,
                                                                       XLA_FFI_Error_Code code, const char* format,
                                                                       ...) noexcept {
  char text[2048];
  __builtin_va_list values;
  __builtin_va_start(values, format);
  __builtin_vsnprintf(text, sizeof(text), format, values);
  __builtin_va_end(values);
  make_utf8(text);
  XLA_FFI_Error_Create_Args args{sizeof(args), nullptr, text, code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/// Destroy an error that XLA returned; the caller owns the error.
inline __attribute__((cold)) void drop_error(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  XLA_FFI_Error_Destroy_Args args{sizeof(args), nullptr, error};
  frame->api->XLA_FFI_Error_Destroy(&args);
}

/// Return the message of an error, valid as long as the error.
inline __attribute__((cold)) const char* message_of(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) noexcept {
  ErrorArgs args{offsetof(ErrorArgs, code) + sizeof(int), nullptr, error, "", 0};
  function_at<void(ErrorArgs*)>(frame, kGetMessagePlace)(&args);
  return args.message;
}

/// Get the call's stream from XLA.
inline __attribute__((always_inline)) XLA_FFI_Error* get_stream(const XLA_FFI_CallFrame* frame,
                                                                void** stream) noexcept {
  XLA_FFI_Stream_Get_Args args{sizeof(args), nullptr, frame->ctx, nullptr};
  XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&args);
  *stream = args.stream;
  return error;
}

/// Get memory of the call's device from XLA, which accepts no alignment above 16, but aligns to 256 bytes.
inline __attribute__((cold)) XLA_FFI_Error* allocate(const XLA_FFI_CallFrame* frame, size_t size,
                                                     void** data) noexcept {
  XLA_FFI_DeviceMemory_Allocate_Args args{sizeof(args), nullptr, frame->ctx, size, 16, nullptr};
  XLA_FFI_Error* error = frame->api->XLA_FFI_DeviceMemory_Allocate(&args);
  *data = args.data;
  return error;
}

/// Return memory to XLA, in the order of the call's stream: work that is under way may still use it.
inline __attribute__((cold)) void free(const XLA_FFI_CallFrame* frame, void* data, size_t size) noexcept {
  XLA_FFI_DeviceMemory_Free_Args args{sizeof(args), nullptr, frame->ctx, size, data};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_DeviceMemory_Free(&args)) drop_error(frame, error);
}

/// Find XLA's metadata query among the extensions of a frame; null in a call, which may have other extensions.
inline Metadata* find_metadata(const XLA_FFI_CallFrame* frame) noexcept {
  const Extension* extension = reinterpret_cast<const Extension*>(frame->extension_start);
  while (extension != nullptr && extension->type != XLA_FFI_Extension_Metadata) extension = extension->next;
  return extension == nullptr ? nullptr : reinterpret_cast<const MetadataExtension*>(extension)->metadata;
}

/// Do the work of `answer_metadata` for a frame that has an extension.
inline __attribute__((noinline)) bool answer_extension(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept {
  Metadata* metadata = find_metadata(frame);
  if (metadata == nullptr) return false;
  metadata->api_version.major_version = kClaimMajor;
  metadata->api_version.minor_version = kClaimMinor;
  metadata->traits = traits;
  return true;
}

/// Answer XLA's metadata query with the API version and the traits of a handler; false if the frame is a call.
inline __attribute__((always_inline)) bool answer_metadata(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept {
  return __builtin_expect(frame->extension_start != nullptr, 0) && answer_extension(frame, traits);
}

/// Return a buffer of a call by its number, arguments before results.
inline const XLA_FFI_Buffer* buffer_at(const XLA_FFI_CallFrame* frame, int64_t index) noexcept {
  void* const* buffers =
      index < frame->args.size ? frame->args.args + index : frame->rets.rets + index - frame->args.size;
  return static_cast<const XLA_FFI_Buffer*>(*buffers);
}

/// Return the number of elements of an array with these extents.
inline int64_t element_count(const int64_t* extents, int64_t rank) noexcept {
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) count *= extents[i];
  return count;
}

/// Return whether the last argument and the last result are tokens, by which XLA orders calls.
inline bool is_ordered(const XLA_FFI_CallFrame* frame) noexcept {
  const int64_t args = frame->args.size, rets = frame->rets.size;
  return args > 0 && rets > 0 && buffer_at(frame, args + rets - 1)->dtype == XLA_FFI_DataType_TOKEN &&
         buffer_at(frame, args - 1)->dtype == XLA_FFI_DataType_TOKEN;
}

/// Return an ordered call without its tokens.
inline XLA_FFI_CallFrame without_tokens(const XLA_FFI_CallFrame* frame) noexcept {
  XLA_FFI_CallFrame call = *frame;
  --call.args.size;
  --call.rets.size;
  return call;
}

}  // namespace be_xla
