/// \file
/// The XLA FFI side of every module, on `c_api.h` alone. It checks a call frame against the entry point's table, builds
/// the tensors on the stack, calls the trampoline, and turns an exception into an XLA error that names the
/// function.
///
/// It is the same for all modules: compiled once for a toolchain, kept in the cache and linked into each library. So
/// the compilation of a module reads no XLA headers; `xla/ffi/api/ffi.h` would add seconds.

// g++ would copy a tensor's extents with a call of memmove, which takes longer for one to eight extents than the rest
// of the tensor.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include "call_states.h"
#include "fault_names.h"
#include "thread_pool.h"
#include "tvm_call.h"
BE_BEGIN_COLD
#include "brainevent/detail/access_error.h"
BE_END_COLD

namespace BE::detail {
namespace {

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

/// Place tensors over `count` XLA buffers; false if one of them can't be a Tensor.
///
/// `elements` is 0 if all tensors are empty. It is written once: an update in memory for every tensor takes as long as
/// the tensor.
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

/// Call the entry point, on XLA's stream if it takes one.
template <class AnyCall>
inline __attribute__((always_inline)) XLA_FFI_Error* run(XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                         AnyCall& call, void (*trampoline)(const AnyCall&)) noexcept {
  if (entry.has_stream)
    if (XLA_FFI_Error* error = be_xla::get_stream(frame, &call.be_stream)) return error;
  try {
    trampoline(call);
    return nullptr;
  } catch (...) {
    return be_caught(frame, entry);
  }
}

/// Do the work of `place_tensors`. Not inlined, since each copy takes as long to compile as the rest of this file.
__attribute__((noinline)) bool place_any(Tensor* tensors, void* const* buffers, size_t count,
                                         int64_t* elements) noexcept {
  return place_tensors(tensors, buffers, static_cast<int>(count), elements);
}

/// Count the arrays that parameters take, without the arrays of a `*`.
int64_t count_fixed(const char* arrays, int count, uint64_t present) noexcept {
  int64_t fixed = 0;
  for (int i = 0; i < count; ++i) {
    if (arrays[i] == '1') ++fixed;
    if (arrays[i] != '?') continue;
    fixed += static_cast<int64_t>(present & 1);
    present >>= 1;
  }
  return fixed;
}

/// Return the bits of the results, which follow the bits of the arguments.
uint64_t present_results(const char* arrays, int args, uint64_t present) noexcept {
  for (int i = 0; i < args; ++i)
    if (arrays[i] == '?') present >>= 1;
  return present;
}

/// Point `slots` at the tensors of some parameters, and `many` at the tensors of a `*`; false if there are too few or
/// too many.
bool place_slots(const char* arrays, int count, uint64_t present, Tensor* tensors, int64_t size, Tensor** slots,
                 Tensors* many) noexcept {
  const int64_t left = size - count_fixed(arrays, count, present);
  bool is_open = false;
  if (left < 0) return false;
  for (int i = 0; i < count; ++i) {
    slots[i] = tensors;
    if (arrays[i] == '*') {
      is_open = true;
      *many = Tensors(tensors, static_cast<size_t>(left));
      tensors += left;
    } else if (arrays[i] == '?') {
      if ((present & 1) == 0) slots[i] = nullptr;
      tensors += present & 1;
      present >>= 1;
    } else {
      ++tensors;
    }
  }
  return is_open || left == 0;
}

}  // namespace
}  // namespace BE::detail

/// Answer XLA's metadata query; false if the frame is a call.
bool be_answer(XLA_FFI_CallFrame* frame, uint32_t traits) noexcept { return be_xla::answer_metadata(frame, traits); }

BE_BEGIN_COLD
static void print_count(Message& message, const char* what, const char* arrays, int count, uint64_t present) noexcept {
  const int64_t fixed = count_fixed(arrays, count, present);
  const bool is_open = __builtin_memchr(arrays, '*', static_cast<size_t>(count)) != nullptr;
  message.add("%s%ld %s%s", is_open ? "at least " : "", fixed, what, fixed == 1 ? "" : "s");
}

/// Make the error for a call with a wrong number of arrays.
__attribute__((cold)) static XLA_FFI_Error* fail_count(const XLA_FFI_CallFrame* frame, const GeneralSpec& spec,
                                                uint64_t present) noexcept {
  const EntrySpec& entry = spec.be_entry;
  Message message;
  print_count(message, "argument", spec.be_arrays, entry.arg_count, present);
  message.add(" and ");
  print_count(message, "result", spec.be_arrays + entry.arg_count, entry.ret_count,
              present_results(spec.be_arrays, entry.arg_count, present));
  message.add(", but the call passes %ld and %ld", frame->args.size, frame->rets.size);
  if (spec.be_present >= 0)
    message.add("; the bits of the attribute be_present mark the optional arguments and results that are passed");
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: takes %s", entry.name, message.text);
}

/// Check axes as `be_check_axes` does, with a row of axes for each parameter instead of each array.
void be_check_axes_general(const GeneralCall& call, const AxesSpec* declared, const char* names) {
  const EntrySpec& entry = call.be_spec->be_entry;
  size_t most =
      static_cast<size_t>(entry.arg_count + entry.ret_count) + call.be_many[0].size() + call.be_many[1].size();
  AxesSpec* rows = BE_STACK_ROOM(AxesSpec, most);
  int counts[] = {0, 0}, used = 0;
  for (int i = 0; i < entry.arg_count + entry.ret_count; ++i) {
    const bool is_ret = i >= entry.arg_count;
    size_t arrays = call.be_slots[i] != nullptr;
    if (call.be_spec->be_arrays[i] == '*') arrays = call.be_many[is_ret].size();
    counts[is_ret] += static_cast<int>(arrays);
    for (; arrays > 0; --arrays) rows[used++] = declared[i];
  }
  be_check_axes(call, rows, counts[0], counts[1], names);
}

/// Make the error for a call that the entry point does not accept.
__attribute__((cold)) XLA_FFI_Error* be_refuse(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  const int64_t args = frame->args.size, rets = frame->rets.size;
  if (args != entry.arg_count || rets != entry.ret_count)
    return fail(frame, kInvalid, "%s: takes %d argument%s and %d result%s, but the call passes %ld and %ld%s",
                entry.name, entry.arg_count, entry.arg_count == 1 ? "" : "s", entry.ret_count,
                entry.ret_count == 1 ? "" : "s", args, rets,
                rets < entry.ret_count && args > entry.arg_count
                    ? "; a BE::Tensor that is not const is a result: is a const missing?"
                    : "");
  for (int64_t i = 0; i < args + rets; ++i) {
    const XLA_FFI_Buffer* buffer = be_xla::buffer_at(frame, i);
    if (be_holds(reinterpret_cast<const XlaBuffer*>(buffer))) continue;
    const char* const what = i < args ? "argument" : "result";
    const int64_t index = i < args ? i : i - args;
    if (buffer->rank > BE::Tensor::kMaxDims)
      return fail(frame, kInvalid, "%s: %s %ld has %ld dimensions; a BE::Tensor has at most %d", entry.name, what,
                  index, buffer->rank, BE::Tensor::kMaxDims);
    return fail(frame, kInvalid, "%s: %s %ld is of %s, which a BE::Tensor can't hold; cast it to one of %s", entry.name,
                what, index, element_type_name(buffer->dtype), &(BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_LISTED, ))[2]);
  }
  return fail_attrs(frame, entry);
}

/// Make the error for the exception that an entry point threw. Called where it is caught.
__attribute__((cold)) XLA_FFI_Error* be_caught(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  try {
    throw;
  } catch (const BE::AccessError& error) {
    const int64_t args = frame->args.size, rets = frame->rets.size;
    for (int64_t i = 0; i < args + rets && error.data() != nullptr; ++i) {
      const XLA_FFI_Buffer* buffer = be_xla::buffer_at(frame, i);
      if (buffer->data == error.data() && be_dtype_of(buffer->dtype) == error.dtype())
        return fail(frame, kInvalid, "%s: %s %ld: %s", entry.name, i < args ? "argument" : "result",
                    i < args ? i : i - args, error.what());
    }
    return fail(frame, kInvalid, "%s: %s", entry.name, error.what());
  } catch (const BE::CheckError& error) {
    return fail(frame, kInvalid, "%s: %s", entry.name, error.what());
  } catch (const AllocationError& error) {
    return fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "%s: %s", entry.name, error.what());
  } catch (const std::exception& error) {
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: %s", entry.name, error.what());
  } catch (...) {
    return fail(frame, XLA_FFI_Error_Code_UNKNOWN, "%s: threw a C++ exception that is not derived from std::exception",
                entry.name);
  }
}

/// Handle a call whose numbers of arguments and results differ from the entry point: a call that is ordered by a token
/// runs without the token, and other calls are refused.
__attribute__((cold)) XLA_FFI_Error* be_handle_ordered(const XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                       XLA_FFI_Error* (*handle)(XLA_FFI_CallFrame*)) noexcept {
  if (!be_xla::is_ordered(frame)) return be_refuse(frame, entry);
  XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
  return handle(&plain);
}

BE_END_COLD
/// Handle a call. All handlers use this body, except the handlers of brainevent/detail/inline_handler.h, which are
/// compiled with their entry point.
///
/// If all results of a call are empty, the entry point isn't called: a launch of no blocks would be a CUDA error.
XLA_FFI_Error* be_handle(XLA_FFI_CallFrame* frame, const EntrySpec& entry, void (*trampoline)(const Call&),
                         uint32_t traits) noexcept {
  if (be_answer(frame, traits)) return nullptr;
  const int args = entry.arg_count, rets = entry.ret_count;
  if (__builtin_expect(frame->args.size != args || frame->rets.size != rets, 0)) {
    if (!be_xla::is_ordered(frame)) return be_refuse(frame, entry);
    XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
    return be_handle(&plain, entry, trampoline, traits);
  }

  // Uninitialized room on the stack: tensors are placed one by one, so none is cleared first.
  using BE::Tensor;
  Tensor* tensors = BE_STACK_ROOM(Tensor, args + rets);
  const void** values = BE_STACK_ROOM(const void*, entry.attr_count + 1);
  int64_t* room = BE_STACK_ROOM(int64_t, entry.attr_count + 1);
  int64_t arg_elements = 0, ret_elements = 0;
  if (!place_tensors(tensors, frame->args.args, args, &arg_elements) ||
      !place_tensors(tensors + args, frame->rets.rets, rets, &ret_elements))
    return be_refuse(frame, entry);
  if ((frame->attrs.size | entry.attr_count) != 0 && !be_match_attrs(frame, entry, values, room))
    return be_refuse(frame, entry);
  if (ret_elements == 0) return nullptr;

  Call call{tensors, tensors + args, values, nullptr, frame};
  return run(frame, entry, call, trampoline);
}

/// Handle a call as `be_handle` does, for an entry point whose calls may have different numbers of arrays.
XLA_FFI_Error* be_handle_general(XLA_FFI_CallFrame* frame, const GeneralSpec& spec,
                                 void (*trampoline)(const GeneralCall&), uint32_t traits) noexcept {
  using BE::Tensor, BE::Tensors;
  if (be_answer(frame, traits)) return nullptr;
  if (be_xla::is_ordered(frame)) {
    XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
    return be_handle_general(&plain, spec, trampoline, traits);
  }
  const EntrySpec& entry = spec.be_entry;
  const size_t args = static_cast<size_t>(frame->args.size), rets = static_cast<size_t>(frame->rets.size);
  const size_t attrs = static_cast<size_t>(entry.attr_count);
  const size_t params = static_cast<size_t>(entry.arg_count + entry.ret_count);
  Tensor* tensors = BE_STACK_ROOM(Tensor, args + rets + 1);
  Tensor** slots = BE_STACK_ROOM(Tensor*, params);
  const void** values = BE_STACK_ROOM(const void*, attrs + 1);
  int64_t* room = BE_STACK_ROOM(int64_t, attrs + 1);

  int64_t arg_elements, ret_elements;
  EntrySpec fitted = entry;
  fitted.arg_count = static_cast<int>(args);
  fitted.ret_count = static_cast<int>(rets);
  if (!place_any(tensors, frame->args.args, args, &arg_elements) ||
      !place_any(tensors + args, frame->rets.rets, rets, &ret_elements) ||
      !be_match_attrs(frame, entry, values, room))
    return be_refuse(frame, fitted);
  uint64_t present = ~uint64_t{0};
  if (spec.be_present >= 0) memcpy(&present, values[spec.be_present], sizeof(present));
  Tensors many[2];
  if (!place_slots(spec.be_arrays, entry.arg_count, present, tensors, frame->args.size, slots, many) ||
      !place_slots(spec.be_arrays + entry.arg_count, entry.ret_count,
                   present_results(spec.be_arrays, entry.arg_count, present), tensors + args, frame->rets.size,
                   slots + entry.arg_count, many + 1))
    return fail_count(frame, spec, present);
  if (ret_elements == 0) return nullptr;
  GeneralCall call{{tensors, tensors + args, values, nullptr, frame}, &spec, slots, many};
  return run(frame, entry, call, trampoline);
}

/// See `be_faults::name_kernel`.
BE_EXPORT void be_name_kernel(const void* code, const char* text, be_faults::Running* running) {
  be_faults::name_kernel(code, text, running);
}

/// Return the kernel for which this thread runs a part; null if it runs none.
BE_EXPORT const char* be_running_kernel() {
  return BE::detail::entered == nullptr ? nullptr : BE::detail::entered->be_kernel;
}
