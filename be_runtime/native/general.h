#pragma once

/// \file
/// What calls have beyond a fixed number of tensors and of numbers: other attributes, those that a call leaves out, and
/// arrays that may be absent or any number. A part of native/handler.cc.

#include "brainevent/detail/general_call.h"

namespace BE::detail {
namespace {

static_assert(sizeof(XLA_FFI_ByteSpan) == sizeof(Bytes) && offsetof(XLA_FFI_ByteSpan, len) == offsetof(Bytes, be_size));
static_assert(offsetof(XLA_FFI_Array, size) == offsetof(Numbers, be_size));
static_assert(offsetof(XLA_FFI_Array, data) == offsetof(Numbers, be_data));

/// The number of a name among others with spaces between; -1 where it is none of them.
int64_t index_among(const char* names, const XLA_FFI_ByteSpan& name) noexcept {
  for (int64_t index = 0;; ++index) {
    const char* end = names;
    while (*end != ' ' && *end != 0) ++end;
    if (name.len == static_cast<size_t>(end - names) && memcmp(name.ptr, names, name.len) == 0) return index;
    if (*end == 0) return -1;
    names = end + 1;
  }
}

/// Whether an array has elements of the expected type, each of as many numbers as they have.
bool holds_elements(const XLA_FFI_Array& array, const AttrSpec& expected, const AttrMore& more) noexcept {
  return array.dtype == static_cast<XLA_FFI_DataType>(expected.dtype) &&
         array.size % static_cast<size_t>(more.be_count) == 0;
}

/// As `attr_value`, for any attribute.
__attribute__((noinline)) const void* any_value(XLA_FFI_AttrType type, const void* attr, const AttrSpec& expected,
                                               const AttrMore& more, int64_t* room) noexcept {
  switch (more.be_kind) {
    case AttrKind::kString: return type == XLA_FFI_AttrType_STRING ? attr : nullptr;
    case AttrKind::kStruct: return type == XLA_FFI_AttrType_DICTIONARY ? attr : nullptr;
    case AttrKind::kArray:
      return type == XLA_FFI_AttrType_ARRAY && holds_elements(*static_cast<const XLA_FFI_Array*>(attr), expected, more)
                 ? attr
                 : nullptr;
    case AttrKind::kEnum:
      if (type != XLA_FFI_AttrType_STRING) return nullptr;
      *room = index_among(more.be_text, *static_cast<const XLA_FFI_ByteSpan*>(attr));
      return *room < 0 ? nullptr : room;
    case AttrKind::kDType: {
      if (type != XLA_FFI_AttrType_SCALAR) return nullptr;
      int32_t code;
      if (!convert_scalar(*static_cast<const XLA_FFI_Scalar*>(attr), XLA_FFI_DataType_S32, &code)) return nullptr;
      const DType dtype = be_dtype_of(code);
      const int32_t number = static_cast<int32_t>(dtype);
      memcpy(room, &number, sizeof(number));
      return dtype == DType::Invalid ? nullptr : room;
    }
    case AttrKind::kNumber: return attr_value(type, attr, expected, room);
  }
  return nullptr;
}

/// Points `values` at attributes of which some may be left out; false where they are not as expected. Both sides are
/// sorted by name.
__attribute__((noinline)) bool merge_attrs(const XLA_FFI_Attrs& attrs, const AttrSpec* expected,
                                           const AttrMore* more, int count, const void** values,
                                           int64_t* room) noexcept {
  int64_t given = 0;
  for (int i = 0; i < count; ++i) {
    const AttrSpec& spec = expected[i];
    const XLA_FFI_ByteSpan* name = given < attrs.size ? attrs.names[given] : nullptr;
    const void* value = more[i].be_default;
    if (name != nullptr && name->len == spec.name_size && memcmp(name->ptr, spec.name, name->len) == 0) {
      value = any_value(attrs.types[given], attrs.attrs[given], spec, more[i], room + i);
      ++given;
    }
    if (value == nullptr) return false;
    values[spec.position] = value;
  }
  return given == attrs.size;
}

/// Places a tensor over a buffer. Not inlined, since each copy of it takes as long to compile as all else here.
__attribute__((noinline)) bool place_tensor(Tensor* tensor, void* const* buffer) noexcept {
  int64_t elements;
  return place_tensors(tensor, buffer, 1, &elements);
}

/// Counts the arrays that some parameters take, but for those of a `*`.
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

/// Points `slots` at the tensors of some parameters, and `many` at those of a `*`; false where there are too few or too
/// many.
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

BE_BEGIN_COLD
void print_count(Message& message, const char* what, const char* arrays, int count, uint64_t present) noexcept {
  const int64_t fixed = count_fixed(arrays, count, present);
  const bool is_open = __builtin_memchr(arrays, '*', static_cast<size_t>(count)) != nullptr;
  message.add("%s%lld %s%s", is_open ? "at least " : "", static_cast<long long>(fixed), what, fixed == 1 ? "" : "s");
}

/// Says how many arrays a call should have.
__attribute__((cold)) XLA_FFI_Error* fail_count(const XLA_FFI_CallFrame* frame, const GeneralSpec& spec,
                                                uint64_t present) noexcept {
  const EntrySpec& entry = spec.be_entry;
  Message message;
  print_count(message, "argument", spec.be_arrays, entry.arg_count, present);
  message.add(" and ");
  print_count(message, "result", spec.be_arrays + entry.arg_count, entry.ret_count, 0);
  message.add(", but the call passes %lld and %lld", static_cast<long long>(frame->args.size),
              static_cast<long long>(frame->rets.size));
  if (spec.be_present >= 0)
    message.add("; the bits of the attribute be_present say which optional arguments are among them");
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: takes %s", entry.name, message.text);
}

}  // namespace
}  // namespace BE::detail

/// Not optimised, like all that takes dictionaries and declared axes.
void be_read_struct(const void* attr, const char* name, const BE::detail::AttrMore& more, const void** values,
                    int64_t* room) {
  using namespace BE::detail;
  static constexpr XLA_FFI_Attrs kNone{};
  const bool is_left_out = attr == more.be_fields;
  const XLA_FFI_Attrs& attrs = is_left_out ? kNone : *static_cast<const XLA_FFI_Attrs*>(attr);
  if (merge_attrs(attrs, more.be_fields, more.be_more, more.be_count, values, room)) return;
  Message message;
  message.add("%.100s takes the fields ", name);
  print_attrs(message, more.be_text, attrs);
  throw BE::CheckError(message.text);
}

/// As `be_check_axes`, for a row of axes a parameter and not an array.
void be_check_axes_general(const BE::detail::GeneralCall& call, const BE::detail::AxesSpec* declared,
                           const char* names) {
  using namespace BE::detail;
  const EntrySpec& entry = call.be_spec->be_entry;
  size_t most = static_cast<size_t>(entry.arg_count + entry.ret_count) + call.be_many[0].size() + call.be_many[1].size();
  AxesSpec* rows = static_cast<AxesSpec*>(__builtin_alloca(sizeof(AxesSpec) * most));
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

BE_END_COLD
/// As `be_handle`, for an entry point whose calls differ in their arrays.
XLA_FFI_Error* be_handle_general(XLA_FFI_CallFrame* frame, const BE::detail::GeneralSpec& spec,
                                 void (*trampoline)(const BE::detail::GeneralCall&), uint32_t traits) noexcept {
  using namespace BE::detail;
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
  Tensor* tensors = static_cast<Tensor*>(__builtin_alloca(sizeof(Tensor) * (args + rets + 1)));
  Tensor** slots = static_cast<Tensor**>(__builtin_alloca(sizeof(Tensor*) * params));
  const void** values = static_cast<const void**>(__builtin_alloca(sizeof(void*) * (attrs + 1)));
  int64_t* room = static_cast<int64_t*>(__builtin_alloca(sizeof(int64_t) * (attrs + 1)));

  int64_t ret_elements = 0;
  EntrySpec fitted = entry;
  fitted.arg_count = static_cast<int>(args);
  fitted.ret_count = static_cast<int>(rets);
  for (size_t i = 0; i < args + rets; ++i) {
    void* const* buffer = i < args ? frame->args.args + i : frame->rets.rets + (i - args);
    if (!place_tensor(tensors + i, buffer)) return be_refuse(frame, fitted);
    if (i >= args) ret_elements |= tensors[i].numel();
  }
  if (!be_match_attrs(frame, entry, values, room)) return be_refuse(frame, fitted);
  uint64_t present = ~uint64_t{0};
  if (spec.be_present >= 0) memcpy(&present, values[spec.be_present], sizeof(present));
  Tensors many[2];
  if (!place_slots(spec.be_arrays, entry.arg_count, present, tensors, frame->args.size, slots, many) ||
      !place_slots(spec.be_arrays + entry.arg_count, entry.ret_count, 0, tensors + args, frame->rets.size,
                   slots + entry.arg_count, many + 1))
    return fail_count(frame, spec, present);
  if (ret_elements == 0) return nullptr;
  GeneralCall call{{{tensors, tensors + args, values, nullptr}, frame}, &spec, slots, many};
  return run(frame, entry, call, trampoline);
}
