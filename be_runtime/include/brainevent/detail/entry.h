#pragma once

/// \file
/// The handler's arguments for an entry point's trampoline, and the tables by which a generated source describes its
/// entry points to the handler. XLA's types are named as opaque types only, so that an author's unit compiles without
/// XLA's headers.

#include <string.h>

#include "brainevent/tensor.h"

struct XLA_FFI_Error;
struct XLA_FFI_CallFrame;

/// Marks a trampoline and a function that XLA calls.
///
/// An entry point that is inlined into its trampoline takes its tensors without copies. If the unit is known to be the
/// whole program, no other copy of the entry point is compiled. Otherwise a second copy would double a small module's
/// compile time, so inlining is prevented: g++ inlines nothing into a function of another optimization level.
#if defined(BE_INTERNAL_WHOLE_PROGRAM)
#define BE_INTERNAL_TRAMPOLINE static
#define BE_INTERNAL_HANDLER extern "C" __attribute__((visibility("default"), externally_visible))
#elif defined(__GNUC__) && !defined(__clang__)
#define BE_INTERNAL_TRAMPOLINE __attribute__((optimize("O1"))) static
#define BE_INTERNAL_HANDLER extern "C" __attribute__((visibility("default")))
#else
#define BE_INTERNAL_TRAMPOLINE static
#define BE_INTERNAL_HANDLER extern "C" __attribute__((visibility("default")))
#endif

#if defined(__SANITIZE_THREAD__)
#define BE_INTERNAL_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BE_INTERNAL_TSAN
#endif
#endif

/// Order a thread's accesses before its release of an object before another thread's accesses after its acquisition of
/// the object, for ThreadSanitizer, which does not detect XLA's locks.
#if defined(BE_INTERNAL_TSAN)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#define BE_INTERNAL_ACQUIRE(object) __tsan_acquire(const_cast<void*>(static_cast<const void*>(object)))
#define BE_INTERNAL_RELEASE(object) __tsan_release(object)
#else
#define BE_INTERNAL_ACQUIRE(object) ((void)0)
#define BE_INTERNAL_RELEASE(object) ((void)0)
#endif

/// Begins a trampoline whose entry point takes a stream. brainevent/torch_compat.h records the stream with it.
#define BE_INTERNAL_STREAM_OF_CALL(stream)

namespace BE::detail {

/// One call. Every pointer is borrowed from the handler's stack frame and lives until the trampoline returns.
struct Call {
  Tensor* be_args;
  Tensor* be_rets;
  /// The scalar's bytes of each attribute, in the order of the entry point's parameters.
  const void* const* be_attrs;
  /// XLA's stream; null on CPU.
  void* be_stream;
  /// XLA's frame, for a trampoline that gets memory or the state of the call from XLA.
  XLA_FFI_CallFrame* be_frame = nullptr;
};

/// Converts to the type that the entry point declares for its stream: `int64_t`, `cudaStream_t` or any other pointer.
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

/// The only trait that is needed here: <type_traits> would double the time to compile this header.
template <bool kHolds>
struct OnlyIf {};
template <>
struct OnlyIf<true> {
  using Type = void;
};

/// The bytes of an attribute that has no scalar type without a heavy header: 16-bit floats and complex numbers.
/// Converts to any class of that size, and, for 16 bits, `uint16_t`; never a number of another kind.
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

/// Right operand of a comma after the call of an entry point. The comma is the built-in operator if the call returns
/// void, else the operator below.
struct EndOfCall {};

template <typename>
inline constexpr bool kIsVoid = false;

template <typename T>
void operator,(T&&, EndOfCall) {
  static_assert(kIsVoid<T>,
                "an entry point returns void: take each result as a BE::Tensor parameter, and raise errors by BE_CHECK "
                "or an exception");
}

/// See brainevent/detail/attr_values.h.
struct AttrMore;

/// One attribute that an entry point expects. An entry's attributes are sorted by name, as XLA sorts a call's.
struct AttrSpec {
  const char* name;
  size_t name_size;
  /// The `XLA_FFI_DataType` that carries the value: a scalar where `parts` is 0, else an array of so many elements.
  int dtype;
  size_t parts;
  /// Whether `dtype` is the parameter's own: then a scalar of another type is accepted, too, if it has an equal value.
  bool is_number;
  /// Position among the attributes in the order of the entry point's parameters.
  int position;
};

/// Function that computes an extent from the extents of the named axes, `be_axes`, and from attributes.
using ExtentFunction = int64_t (*)(const int64_t* be_axes, const Call& be_call);

/// The axes before an array's declared axes: none, those of the call, or the first of those, as in scratch memory under
/// `vmap`.
enum class Leading : int { kNone, kAll, kFirst };

/// The declared axes of an argument or a result.
struct AxesSpec {
  /// The text that the author wrote; null if any shape is allowed.
  const char* text;
  /// For each axis its extent, or, below 0, the complement of its name's index; `kComputed` for an expression.
  const int64_t* extents;
  int count;
  Leading leading;
  /// A function for each axis that is an expression; null if no axis is one.
  const ExtentFunction* computed;
};

/// Check that an array that a call changes in place has one size as an input and as a result.
inline void be_require_pair(const Tensor& input, const Tensor& result) {
  BE_CHECK(input.nbytes() == result.nbytes() && input.dtype() == result.dtype())
      << "an inout array is " << input.nbytes() << " bytes of " << input.dtype() << " as an input, and "
      << result.nbytes() << " bytes of " << result.dtype() << " as a result";
}

/// Check that a result with contents, which are written before the call, is not the memory of an input beside it.
template <size_t kCount>
inline void be_require_apart(const Tensor& result, const Tensor* const (&inputs)[kCount]) {
  for (const Tensor* input : inputs) {
    BE_CHECK(input->data() != result.data() || result.nbytes() == 0)
        << "input_output_aliases gives a result that is inout or =0 the memory of another input";
  }
}

constexpr int64_t kComputed = INT64_MIN;

/// The description of an entry point, made when its module is compiled. Lives in static storage.
struct EntrySpec {
  /// `module.function`, the beginning of every message.
  const char* name;
  int arg_count;
  int ret_count;
  int attr_count;
  /// Whether to ask XLA for the call's stream.
  bool has_stream;
  const AttrSpec* attrs;
  /// How a Python caller passes the attributes: `scale=np.float32(...), n=np.int32(...)`.
  const char* usage;
  /// A row for each of `attrs`; null if all are numbers that every call passes.
  const AttrMore* more = nullptr;
};

/// An entry point as a function of TVM-FFI's C ABI, for PyTorch, NumPy and others: see native/tvm_call.h.
struct TvmSpec {
  const EntrySpec* be_entry;
  XLA_FFI_Error* (*be_handler)(XLA_FFI_CallFrame*);
  /// Two characters for each argument; null if there can be no such call.
  const char* be_order;
  /// The names of the arguments, separated by spaces; the reason if there can be no such call.
  const char* be_names;
  bool be_is_cuda;
};

/// The bit of `XLA_FFI_Handler_TraitsBits` that lets a command buffer capture the calls.
constexpr uint32_t kCommandBufferCompatible = 1;

}  // namespace BE::detail

/// See native/arguments.h.
BE_INTERNAL_HIDDEN int64_t be_compute(char, int64_t, int64_t) noexcept;
BE_INTERNAL_HIDDEN void be_check_axes(const BE::detail::Call&, const BE::detail::AxesSpec*, int, int, const char*);

/// See native/handler.cc.
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_handle(XLA_FFI_CallFrame*, const BE::detail::EntrySpec&,
                                            void (*)(const BE::detail::Call&), uint32_t) noexcept;
BE_INTERNAL_HIDDEN bool be_answer(XLA_FFI_CallFrame*, uint32_t) noexcept;
BE_INTERNAL_HIDDEN bool be_match_attrs(const XLA_FFI_CallFrame*, const BE::detail::EntrySpec&, const void**,
                                       int64_t*) noexcept;
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_refuse(const XLA_FFI_CallFrame*, const BE::detail::EntrySpec&) noexcept;
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_handle_ordered(const XLA_FFI_CallFrame*, const BE::detail::EntrySpec&,
                                                    XLA_FFI_Error* (*)(XLA_FFI_CallFrame*)) noexcept;
BE_INTERNAL_HIDDEN int be_tvm_call(const BE::detail::TvmSpec&, const void*, int32_t, void*) noexcept;
BE_INTERNAL_HIDDEN XLA_FFI_Error* be_caught(const XLA_FFI_CallFrame*, const BE::detail::EntrySpec&) noexcept;

/// The body of a handler, compiled with its entry point if possible, and the code that is on the stack while the
/// entry point runs.
#if defined(BE_INTERNAL_WHOLE_PROGRAM)
#include "brainevent/detail/inline_handler.h"
#define BE_INTERNAL_HANDLE(be_call, be_entry, be_trampoline, be_traits) \
  ::BE::detail::be_handle_inline<be_entry, be_trampoline>(be_call, be_traits)
#define BE_INTERNAL_CODE(be_entry, be_trampoline) ::BE::detail::be_run<be_entry, be_trampoline>
#else
#define BE_INTERNAL_HANDLE(be_call, be_entry, be_trampoline, be_traits) \
  be_handle(be_call, be_entry, be_trampoline, be_traits)
#define BE_INTERNAL_CODE(be_entry, be_trampoline) be_trampoline
#endif

/// Begins every function that XLA calls; brainevent/parallel.h redefines it.
#define BE_INTERNAL_ENTER(be_call, be_kernel)
