/// \file
/// The XLA FFI side of every module, on `c_api.h` alone: checks a call frame against the entry point's table, builds
/// the tensors on the stack, calls the trampoline and turns whatever it throws into an XLA error that names the
/// function.
///
/// It is the same for all modules: compiled once for a toolchain, kept in the cache and linked into each library. That
/// leaves a module's own compile without XLA's headers; `xla/ffi/api/ffi.h` would cost it seconds.

#include "xla/ffi/api/c_api.h"

// g++ would copy a tensor's extents with a call of memmove, which for one to eight of them costs more than the rest of
// the tensor.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include <stddef.h>

#include <new>

// What only runs when a call is wrong is not optimised: g++ would spend twice the handler's own time on it.
#if defined(__GNUC__) && !defined(__clang__)
#define BE_BEGIN_COLD _Pragma("GCC push_options") _Pragma("GCC optimize(\"O0\")")
#define BE_END_COLD _Pragma("GCC pop_options")
#else
#define BE_BEGIN_COLD
#define BE_END_COLD
#endif

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"
#include "brainevent/detail/general_call.h"
#include "brainevent/detail/xla_frame.h"
BE_BEGIN_COLD
#include "axes.h"
#include "brainevent/detail/access_error.h"
BE_END_COLD
#include "asked_memory.h"
#include "xla_call.h"

namespace BE::detail {
namespace {

using be_xla::fail;

// The structures of xla_frame.h are XLA's.
static_assert(offsetof(XLA_FFI_Buffer, dtype) == offsetof(XlaBuffer, be_dtype) && sizeof(XLA_FFI_DataType) == 4);
static_assert(offsetof(XLA_FFI_Buffer, data) == offsetof(XlaBuffer, be_data));
static_assert(offsetof(XLA_FFI_Buffer, rank) == offsetof(XlaBuffer, be_rank));
static_assert(offsetof(XLA_FFI_Buffer, dims) == offsetof(XlaBuffer, be_dims));
static_assert(offsetof(XLA_FFI_Args, size) == offsetof(XlaItems, be_count));
static_assert(offsetof(XLA_FFI_Args, args) == offsetof(XlaItems, be_buffers));
static_assert(offsetof(XLA_FFI_Rets, size) == offsetof(XlaItems, be_count));
static_assert(offsetof(XLA_FFI_Rets, rets) == offsetof(XlaItems, be_buffers));
static_assert(offsetof(XLA_FFI_Attrs, size) == offsetof(XlaAttrs, be_count));
static_assert(offsetof(XLA_FFI_CallFrame, extension_start) == offsetof(XlaFrame, be_extension));
static_assert(offsetof(XLA_FFI_CallFrame, args) == offsetof(XlaFrame, be_args));
static_assert(offsetof(XLA_FFI_CallFrame, rets) == offsetof(XlaFrame, be_rets));
static_assert(offsetof(XLA_FFI_CallFrame, attrs) == offsetof(XlaFrame, be_attrs));

#define BE_CHECK_CODE(dtype, value, type, name, bits, xla, code, ...) \
  static_assert(XLA_FFI_DataType_##xla == code, "the number of " #name);
BE_INTERNAL_ELEMENT_TYPES(BE_CHECK_CODE, )

/// The name of one of XLA's element types, for messages.
const char* element_type_name(XLA_FFI_DataType dtype) noexcept {
  const DType known = be_dtype_of(dtype);
  if (known != DType::Invalid) return dtype_name(known);
  switch (dtype) {
    case XLA_FFI_DataType_TOKEN: return "token";
    case XLA_FFI_DataType_S1: return "int1";
    case XLA_FFI_DataType_U1: return "uint1";
    default: return "an unknown type";
  }
}

BE_BEGIN_COLD
/// Says why a buffer can't be a Tensor.
__attribute__((cold)) XLA_FFI_Error* fail_buffer(const XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                        const char* what, int index, const void* buffer) noexcept {
  const XLA_FFI_Buffer* bad = static_cast<const XLA_FFI_Buffer*>(buffer);
  if (bad->rank > Tensor::kMaxDims)
    return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                "%s: %s %d has %lld dimensions; a BE::Tensor has at most %d", entry.name, what, index,
                static_cast<long long>(bad->rank), Tensor::kMaxDims);
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
              "%s: %s %d is of %s, which a BE::Tensor can't hold; cast it to one of %s", entry.name, what, index,
              element_type_name(bad->dtype), &(BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_LISTED, ))[2]);
}

template <class T>
long double number_at(const void* value) noexcept {
  T number;
  memcpy(&number, value, sizeof(T));
  return static_cast<long double>(number);
}

/// The greatest number that a T holds.
template <class T>
constexpr long double kGreatest = sizeof(T) == 8 ? (T(-1) < T(0) ? __INT64_MAX__ : __UINT64_MAX__)
                                                 : (1ULL << (8 * sizeof(T) - (T(-1) < T(0) ? 1 : 0))) - 1;
template <>
constexpr long double kGreatest<bool> = 1;
template <>
constexpr long double kGreatest<float> = __FLT_MAX__;
template <>
constexpr long double kGreatest<double> = __DBL_MAX__;

/// Writes a number as a T, if a T holds it; one that `may_round` is rounded in a T that has fractions.
template <class T>
bool write_number(long double number, bool may_round, void* room) noexcept {
  constexpr bool kHasFractions = T(0.5) != T(0) && T(2) != T(1);
  constexpr long double kLeast = kHasFractions ? -kGreatest<T> : T(-1) < T(0) ? -kGreatest<T> - 1 : 0;
  const bool is_finite = number - number == 0;
  if (is_finite ? number < kLeast || number > kGreatest<T> : !kHasFractions) return false;
  const T value = static_cast<T>(number);
  if (is_finite && static_cast<long double>(value) != number && !(may_round && kHasFractions)) return false;
  memcpy(room, &value, sizeof(T));
  return true;
}

/// Does `DO` with the C++ type of a scalar attribute.
#define BE_WITH_SCALAR_TYPE(DTYPE, DO)              \
  switch (DTYPE) {                                  \
    BE_INTERNAL_BOOL_TYPES(BE_SCALAR_CASE, DO)      \
    BE_INTERNAL_INTEGRAL_TYPES(BE_SCALAR_CASE, DO)  \
    BE_INTERNAL_FLOATING_TYPES(BE_SCALAR_CASE, DO)  \
    default: break;                                 \
  }
#define BE_SCALAR_CASE(dtype, value, type, name, bits, xla, code, DO) \
  case XLA_FFI_DataType_##xla: DO(type);

bool is_real(XLA_FFI_DataType dtype) noexcept {
  return dtype == XLA_FFI_DataType_F32 || dtype == XLA_FFI_DataType_F64;
}

/// The value of a scalar attribute, which holds all integers of 64 bits; false for one that is no number.
bool read_scalar(const XLA_FFI_Scalar& scalar, long double* number) noexcept {
#define BE_READ(T) *number = number_at<T>(scalar.value); return true
  BE_WITH_SCALAR_TYPE(scalar.dtype, BE_READ)
  return false;
}

/// Writes a scalar attribute as another type: JAX makes a float64 of `2.0` and an int64 of `2`, and takes them, and
/// `np.float32(2.0)`, for one value when it looks for a compiled program. False where the type doesn't hold it.
__attribute__((cold, noinline)) bool convert_scalar(const XLA_FFI_Scalar& scalar, XLA_FFI_DataType dtype,
                                                    void* room) noexcept {
  long double number;
  if (!read_scalar(scalar, &number)) return false;
  const bool may_round = is_real(scalar.dtype);
#define BE_WRITE(T) return write_number<T>(number, may_round, room)
  BE_WITH_SCALAR_TYPE(dtype, BE_WRITE)
  return false;
}

/// Spells an attribute of a call: its name, its type and, where it is a number or a text, its value.
void print_attr(Message& message, const XLA_FFI_ByteSpan& name, XLA_FFI_AttrType type, const void* attr) noexcept {
  static constexpr const char* kKinds[] = {"unknown", "array of ", "dictionary", "", "string"};
  const unsigned kind = static_cast<unsigned>(type);
  // Scalars and arrays both begin with their element type.
  const char* element = type == XLA_FFI_AttrType_SCALAR || type == XLA_FFI_AttrType_ARRAY
                            ? element_type_name(*static_cast<const XLA_FFI_DataType*>(attr))
                            : "";
  message.add("%.*s: %s%s", static_cast<int>(name.len < 100 ? name.len : 100), name.ptr, kKinds[kind < 5 ? kind : 0],
              element);
  long double number;
  if (type == XLA_FFI_AttrType_SCALAR && read_scalar(*static_cast<const XLA_FFI_Scalar*>(attr), &number)) {
    const bool has_fraction = is_real(static_cast<const XLA_FFI_Scalar*>(attr)->dtype);
    message.add(has_fraction ? " %.9Lg" : " %.0Lf", number);
  } else if (type == XLA_FFI_AttrType_STRING) {
    const XLA_FFI_ByteSpan* text = static_cast<const XLA_FFI_ByteSpan*>(attr);
    message.add(" \"%.*s\"", static_cast<int>(text->len < 60 ? text->len : 60), text->ptr);
  }
}

/// Says what a call passes, after what it should.
void print_attrs(Message& message, const char* expected, const XLA_FFI_Attrs& attrs) noexcept {
  message.add("(%.600s), but the call passes (%s", expected, attrs.size == 0 ? "none" : "");
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (i != 0) message.add(", ");
    print_attr(message, *attrs.names[i], attrs.types[i], attrs.attrs[i]);
  }
  message.add(")");
}

/// Says which attributes the entry point takes and which the call passes.
__attribute__((cold)) XLA_FFI_Error* fail_attrs(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  Message message;
  print_attrs(message, entry.usage, frame->attrs);
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: takes the attributes %s", entry.name, message.text);
}

BE_END_COLD
/// Places tensors over `count` XLA buffers; false when one of them can't be a Tensor.
///
/// `elements` is 0 when all of them are empty. It is written once: a flag that is updated in memory for every tensor
/// costs as much as the tensor.
inline __attribute__((always_inline)) bool place_tensors(Tensor* tensors, void* const* buffers, int count,
                                                         int64_t* elements) noexcept {
  int64_t some = 0;
  for (int i = 0; i < count; ++i) {
    const XlaBuffer* buffer = static_cast<const XlaBuffer*>(buffers[i]);
    if (!be_holds(buffer)) return false;
    new (tensors + i) Tensor(be_view(buffer));
    some |= tensors[i].numel();
  }
  *elements = some;
  return true;
}

/// The bytes of one of a call's attributes, in `room` where it is converted; null when it is not as expected.
inline __attribute__((always_inline)) const void* attr_value(XLA_FFI_AttrType type, const void* attr,
                                                             const AttrSpec& expected, int64_t* room) noexcept {
  const XLA_FFI_DataType dtype = static_cast<XLA_FFI_DataType>(expected.dtype);
  if (expected.parts == 0) {
    const XLA_FFI_Scalar* scalar = static_cast<const XLA_FFI_Scalar*>(attr);
    if (type != XLA_FFI_AttrType_SCALAR) return nullptr;
    if (__builtin_expect(scalar->dtype == dtype, 1)) return scalar->value;
    return expected.is_number && convert_scalar(*scalar, dtype, room) ? room : nullptr;
  }
  const XLA_FFI_Array* array = static_cast<const XLA_FFI_Array*>(attr);
  const bool fits = type == XLA_FFI_AttrType_ARRAY && array->dtype == dtype && array->size == expected.parts;
  return fits ? array->data : nullptr;
}

inline bool match_numbers(const XLA_FFI_Attrs& attrs, const EntrySpec& entry, const void** values,
                          int64_t* room) noexcept {
  if (attrs.size != entry.attr_count) return false;
  for (int i = 0; i < entry.attr_count; ++i) {
    const AttrSpec& expected = entry.attrs[i];
    const XLA_FFI_ByteSpan* name = attrs.names[i];
    if (name->len != expected.name_size || memcmp(name->ptr, expected.name, name->len) != 0) return false;
    const void* value = attr_value(attrs.types[i], attrs.attrs[i], expected, room + i);
    if (value == nullptr) return false;
    values[expected.position] = value;
  }
  return true;
}

/// Calls the entry point, on XLA's stream where it takes one.
template <class AnyCall>
inline __attribute__((always_inline)) XLA_FFI_Error* run(XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                         AnyCall& call, void (*trampoline)(const AnyCall&)) noexcept {
  if (entry.has_stream) {
    XLA_FFI_Stream_Get_Args stream{};
    stream.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
    stream.ctx = frame->ctx;
    if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&stream)) return error;
    call.be_stream = stream.stream;
  }
  try {
    trampoline(call);
    return nullptr;
  } catch (...) {
    return be_caught(frame, entry);
  }
}

BE_BEGIN_COLD
/// The index of the first of `count` buffers at an address, of an element type; -1 where there is none.
int index_of(void* const* buffers, int64_t count, const BE::AccessError& error) noexcept {
  for (int64_t i = 0; i < count && error.data() != nullptr; ++i) {
    const XlaBuffer* buffer = static_cast<const XlaBuffer*>(buffers[i]);
    if (buffer->be_data == error.data() && be_dtype_of(buffer->be_dtype) == error.dtype()) return static_cast<int>(i);
  }
  return -1;
}

/// Says which argument or result was accessed in a way that is not possible, where it is one of the call's.
__attribute__((cold)) XLA_FFI_Error* fail_access(const XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                       const BE::AccessError& error) noexcept {
  const int arg = index_of(frame->args.args, frame->args.size, error);
  const int ret = index_of(frame->rets.rets, frame->rets.size, error);
  if (arg < 0 && ret < 0)
    return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: %s", entry.name, error.what());
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: %s %d: %s", entry.name,
              arg < 0 ? "result" : "argument", arg < 0 ? ret : arg, error.what());
}
BE_END_COLD

}  // namespace
}  // namespace BE::detail

#include "general.h"

using namespace BE::detail;

/// Answers XLA's question about a handler; false when the frame is a call and no question.
bool be_answer(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept { return be_xla::answer_metadata(frame, traits); }

/// Points `values` at the call's attributes in the order of the parameters; false when they are not the expected ones.
///
/// First as if all were numbers that every call passes, since most are.
///
/// \param room  a word for each of them, for those that are converted
bool be_match_attrs(const XLA_FFI_CallFrame* frame, const EntrySpec& entry, const void** values,
                    int64_t* room) noexcept {
  if (match_numbers(frame->attrs, entry, values, room)) return true;
  return entry.more != nullptr &&
         merge_attrs(frame->attrs, entry.attrs, entry.more, entry.attr_count, values, room);
}

BE_BEGIN_COLD
/// Says what of a call isn't as the entry point wants it.
__attribute__((cold)) XLA_FFI_Error* be_refuse(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  const XLA_FFI_Args& args = frame->args;
  const XLA_FFI_Rets& rets = frame->rets;
  if (args.size != entry.arg_count || rets.size != entry.ret_count)
    return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                "%s: takes %d arguments and %d results, but the call passes %lld and %lld%s", entry.name,
                entry.arg_count, entry.ret_count, static_cast<long long>(args.size),
                static_cast<long long>(rets.size), rets.size < entry.ret_count && args.size > entry.arg_count
                    ? "; a BE::Tensor that is not const is a result: is a const missing?" : "");
  for (int i = 0; i < entry.arg_count; ++i)
    if (!be_holds(static_cast<const XlaBuffer*>(args.args[i])))
      return fail_buffer(frame, entry, "argument", i, args.args[i]);
  for (int i = 0; i < entry.ret_count; ++i)
    if (!be_holds(static_cast<const XlaBuffer*>(rets.rets[i])))
      return fail_buffer(frame, entry, "result", i, rets.rets[i]);
  return fail_attrs(frame, entry);
}

/// What was thrown in an entry point, as an error. Call it where it is caught.
__attribute__((cold)) XLA_FFI_Error* be_caught(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  try {
    throw;
  } catch (const BE::AccessError& error) {
    return fail_access(frame, entry, error);
  } catch (const BE::CheckError& error) {
    return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: %s", entry.name, error.what());
  } catch (const AllocationError& error) {
    return fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "%s: %s", entry.name, error.what());
  } catch (const std::exception& error) {
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: %s", entry.name, error.what());
  } catch (...) {
    return fail(frame, XLA_FFI_Error_Code_UNKNOWN, "%s: threw a C++ exception that is not derived from std::exception",
                entry.name);
  }
}

/// A call with other numbers of arguments and results than the entry point has: one that is ordered by a token is made
/// without it, any other is refused.
__attribute__((cold)) XLA_FFI_Error* be_handle_ordered(const XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                       XLA_FFI_Error* (*handle)(XLA_FFI_CallFrame*)) noexcept {
  if (!be_xla::is_ordered(frame)) return be_refuse(frame, entry);
  XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
  return handle(&plain);
}

BE_END_COLD
/// The body of every handler but those that are compiled with their entry point: brainevent/detail/inline_handler.h.
///
/// When all results of a call are empty there is nothing to compute, and the entry point isn't called: a launch of no
/// blocks would be a CUDA error.
template <class AnyCall>
inline __attribute__((always_inline)) XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                            void (*trampoline)(const AnyCall&),
                                                            uint32_t traits) noexcept {
  if (be_answer(frame, traits)) return nullptr;
  const int args = entry.arg_count, rets = entry.ret_count;
  if (__builtin_expect(frame->args.size != args || frame->rets.size != rets, 0)) {
    if (!be_xla::is_ordered(frame)) return be_refuse(frame, entry);
    XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
    if constexpr (__is_same(AnyCall, Call)) return be_handle(&plain, entry, trampoline, traits);
    else return be_handle_frame(&plain, entry, trampoline, traits);
  }

  // Uninitialised room on the stack: tensors are placed one by one, so none is cleared first.
  using BE::Tensor;
  Tensor* tensors = static_cast<Tensor*>(__builtin_alloca(sizeof(Tensor) * static_cast<size_t>(args + rets)));
  const void** values =
      static_cast<const void**>(__builtin_alloca(sizeof(void*) * static_cast<size_t>(entry.attr_count + 1)));
  int64_t* room = static_cast<int64_t*>(__builtin_alloca(sizeof(int64_t) * static_cast<size_t>(entry.attr_count + 1)));
  int64_t arg_elements = 0, ret_elements = 0;
  if (!place_tensors(tensors, frame->args.args, args, &arg_elements) ||
      !place_tensors(tensors + args, frame->rets.rets, rets, &ret_elements))
    return be_refuse(frame, entry);
  if ((frame->attrs.size | entry.attr_count) != 0 && !be_match_attrs(frame, entry, values, room))
    return be_refuse(frame, entry);
  if (ret_elements == 0) return nullptr;

  Call call{tensors, tensors + args, values, nullptr};
  if constexpr (__is_same(AnyCall, Call)) {
    return run(frame, entry, call, trampoline);
  } else {
    AnyCall whole{call, frame};
    return run(frame, entry, whole, trampoline);
  }
}

XLA_FFI_Error* be_handle(XLA_FFI_CallFrame* frame, const EntrySpec& entry, void (*trampoline)(const Call&),
                         uint32_t traits) noexcept {
  return handle(frame, entry, trampoline, traits);
}

XLA_FFI_Error* be_handle_frame(XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                 void (*trampoline)(const FrameCall&), uint32_t traits) noexcept {
  return handle(frame, entry, trampoline, traits);
}

#include "call_states.h"
#include "thread_pool.h"

#include "fault_names.h"

/// See `be_faults::name_kernel`.
extern "C" __attribute__((visibility("default"))) void be_name_kernel(const void* code, const char* text,
                                                                      be_faults::Running* running) {
  be_faults::name_kernel(code, text, running);
}

/// The kernel for which this thread runs a part; null where it runs none.
extern "C" __attribute__((visibility("default"))) const char* be_running_kernel() {
  return BE::detail::entered == nullptr ? nullptr : BE::detail::entered->be_kernel;
}
