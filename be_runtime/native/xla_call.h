/// \file
/// What every XLA FFI handler of ours does with a call frame besides its work, on `c_api.h` alone: it says what it is,
/// finds buffers and makes errors.

#pragma once

#include "ffi_versions.h"

namespace be_xla {

/// Bytes of the UTF-8 character that begins at `at`; 0 when none does.
inline __attribute__((cold)) int utf8_size(const unsigned char* at) noexcept {
  if (at[0] < 0x80) return 1;
  if (at[0] < 0xC2 || at[0] > 0xF4) return 0;
  const int size = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
  for (int i = 1; i < size; ++i)
    if ((at[i] & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies beyond Unicode.
  const bool bad = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
                   (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F);
  return bad ? 0 : size;
}

/// Puts question marks where a text is no UTF-8: Python would fail to read the whole message.
inline __attribute__((cold)) void make_utf8(char* text) noexcept {
  for (unsigned char* at = reinterpret_cast<unsigned char*>(text); *at != 0;) {
    const int size = utf8_size(at);
    if (size == 0) *at = '?';
    at += size == 0 ? 1 : size;
  }
}

/// Makes an XLA error of a printf format. XLA copies the text.
inline __attribute__((cold, format(printf, 3, 4))) XLA_FFI_Error* fail(const XLA_FFI_CallFrame* frame,
                                                                       XLA_FFI_Error_Code code, const char* format,
                                                                       ...) noexcept {
  char text[2048];
  __builtin_va_list values;
  __builtin_va_start(values, format);
  __builtin_vsnprintf(text, sizeof(text), format, values);
  __builtin_va_end(values);
  make_utf8(text);
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = text;
  args.errc = code;
  return frame->api->XLA_FFI_Error_Create(&args);
}

/// XLA's question about a handler, among the extensions of a frame; null in a call, which may have others.
inline Metadata* find_metadata(const XLA_FFI_CallFrame* frame) noexcept {
  const Extension* extension = reinterpret_cast<const Extension*>(frame->extension_start);
  while (extension != nullptr && extension->type != XLA_FFI_Extension_Metadata) extension = extension->next;
  return extension == nullptr ? nullptr : reinterpret_cast<const MetadataExtension*>(extension)->metadata;
}

/// What `answer_metadata` does for a frame that has an extension.
inline __attribute__((noinline)) bool answer_extension(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept {
  Metadata* metadata = find_metadata(frame);
  if (metadata == nullptr) return false;
  metadata->api_version.major_version = kClaimMajor;
  metadata->api_version.minor_version = kClaimMinor;
  metadata->traits = traits;
  return true;
}

/// Answers XLA's question which API a handler needs and whether a command buffer may capture it; false
/// when the frame is a call and no question.
inline __attribute__((always_inline)) bool answer_metadata(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept {
  return __builtin_expect(frame->extension_start != nullptr, 0) && answer_extension(frame, traits);
}

/// A buffer of a call by its number, arguments before results.
inline const XLA_FFI_Buffer* buffer_at(const XLA_FFI_CallFrame* frame, int64_t index) noexcept {
  void* const* buffers = index < frame->args.size ? frame->args.args + index : frame->rets.rets + index - frame->args.size;
  return static_cast<const XLA_FFI_Buffer*>(*buffers);
}

/// Whether the last argument and the last result are tokens, by which XLA orders calls.
inline bool is_ordered(const XLA_FFI_CallFrame* frame) noexcept {
  const int64_t args = frame->args.size, rets = frame->rets.size;
  return args > 0 && rets > 0 && buffer_at(frame, args + rets - 1)->dtype == XLA_FFI_DataType_TOKEN &&
         buffer_at(frame, args - 1)->dtype == XLA_FFI_DataType_TOKEN;
}

/// An ordered call without its tokens.
inline XLA_FFI_CallFrame without_tokens(const XLA_FFI_CallFrame* frame) noexcept {
  XLA_FFI_CallFrame call = *frame;
  --call.args.size;
  --call.rets.size;
  return call;
}

}  // namespace be_xla
