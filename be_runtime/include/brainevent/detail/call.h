#pragma once

/// \file
/// The handler's arguments for an entry point's trampoline.

#include <string.h>

#include "brainevent/tensor.h"

struct XLA_FFI_Error;
struct XLA_FFI_CallFrame;

namespace BE::detail {

/// One launch. Every pointer is borrowed from the handler's stack frame and lives until the trampoline returns.
struct Call {
  Tensor* be_args;
  Tensor* be_rets;
  /// The scalar's bytes of each attribute, in the order of the entry point's parameters.
  const void* const* be_attrs;
  /// XLA's stream; null on CPU.
  void* be_stream;
};

/// One launch whose trampoline asks XLA for more than its arguments: memory, or the state of the call.
struct FrameCall : Call {
  XLA_FFI_CallFrame* be_frame;
};

/// Becomes the type that the entry point declares for its stream: `int64_t`, `cudaStream_t` or any other pointer.
struct StreamValue {
  void* handle;
  operator int64_t() const noexcept {  // NOLINT: implicit on purpose
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(handle));
  }
  template <class T>
  operator T*() const noexcept {  // NOLINT: implicit on purpose
    return static_cast<T*>(handle);
  }
};

/// The one trait that is needed here: <type_traits> would double the cost of this header.
template <bool kHolds>
struct OnlyIf {};
template <>
struct OnlyIf<true> {
  using Type = void;
};

/// The bytes of an attribute that has no scalar type without a heavy header: 16-bit floats and complex numbers.
/// Becomes any class of that size, and, for 16 bits, `uint16_t`; never a number of another kind.
template <size_t kSize>
struct OpaqueValue {
  unsigned char bytes[kSize];

  template <class T, class = typename OnlyIf<sizeof(T) == kSize && (__is_class(T) || __is_same(T, uint16_t))>::Type>
  operator T() const noexcept {  // NOLINT: implicit on purpose
    T value;
    memcpy(static_cast<void*>(&value), bytes, kSize);
    return value;
  }
};

/// Read attribute `index` of a call as `T`.
template <class T>
inline T be_attr(const Call& call, int index) noexcept {
  T value;
  memcpy(static_cast<void*>(&value), call.be_attrs[index], sizeof(T));
  return value;
}

}  // namespace BE::detail
