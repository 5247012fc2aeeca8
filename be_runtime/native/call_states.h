#pragma once

/// \file
/// The objects of BE::State: XLA keeps one for each call site, from the instantiate stage until it drops the program.

#include <pthread.h>
#include <stdio.h>

#include "arguments.h"
#include "brainevent/ffi_compat.h"
#include "brainevent/state.h"

namespace BE::detail {
namespace {

/// Lock for objects that are made once; recursive, since a constructor may take it again.
pthread_mutex_t making = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

class MakingGuard {
 public:
  MakingGuard() noexcept { pthread_mutex_lock(&making); }
  ~MakingGuard() { pthread_mutex_unlock(&making); }
  MakingGuard& operator=(MakingGuard&&) = delete;
};

/// Return the entry of a copy of XLA in a record, or a free one; null if all are taken.
inline StateRecord::Known* find_known(StateRecord& record, const void* api) noexcept {
  for (StateRecord::Known& known : record.be_known) {
    const void* of = __atomic_load_n(&known.be_api, __ATOMIC_ACQUIRE);
    if (of == api || of == nullptr) return &known;
  }
  return nullptr;
}

inline XLA_FFI_TypeId* type_of(StateRecord::Known& known) noexcept {
  static_assert(sizeof(XLA_FFI_TypeId) == sizeof(known.be_type));
  return reinterpret_cast<XLA_FFI_TypeId*>(&known.be_type);
}

/// Call XLA_FFI_State_Set or XLA_FFI_State_Get of the XLA that made the frame. The state is the last argument of both.
template <class Function>
inline __attribute__((always_inline)) XLA_FFI_Error* call_with_state(const XLA_FFI_CallFrame* frame, Function* function,
                                                                     StateRecord::Known& known, void** state,
                                                                     void (*deleter)(void*)) noexcept {
  XLA_FFI_Error* error;
  const auto call = [&](auto& args) {
    error = reinterpret_cast<XLA_FFI_Error* (*)(void*)>(function)(&args);
    *state = args.state;
  };
  if (__builtin_expect(be_xla::minor_version(frame) >= be_xla::kStatesHaveStage, 1)) {
    be_xla::StateArgs args{sizeof(args),   nullptr, frame->ctx, XLA_FFI_ExecutionStage_INSTANTIATE,
                           type_of(known), *state};
    call(args);
  } else {
    be_xla::StageLessArgs args{sizeof(args), nullptr, frame->ctx, type_of(known), *state, deleter};
    call(args);
  }
  return error;
}

BE_BEGIN_COLD
/// Register the state's type with a copy of XLA, once, under a name that no other record has.
__attribute__((cold, noinline)) XLA_FFI_Error* know_type(const XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                         StateRecord& record) noexcept {
  const MakingGuard guard;
  StateRecord::Known* known = find_known(record, frame->api);
  if (known == nullptr)
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: too many copies of XLA have its state", entry.name);
  if (known->be_api != nullptr) return nullptr;
  char name[512];
  const int size = snprintf(name, sizeof(name), "be_runtime.%p.%.400s", static_cast<void*>(&record), entry.name);
  const be_xla::TypeInfo info{sizeof(info), nullptr, record.be_delete};
  be_xla::RegisterArgs args{sizeof(args), nullptr, {name, static_cast<size_t>(size)}, type_of(*known), &info};
  const auto register_type = be_xla::function_at<XLA_FFI_Error*(be_xla::RegisterArgs*)>(frame, be_xla::kRegisterPlace);
  if (XLA_FFI_Error* error = register_type(&args)) return error;
  __atomic_store_n(&known->be_api, frame->api, __ATOMIC_RELEASE);
  return nullptr;
}

/// Answer XLA's metadata query, and add the state's type if this version of XLA has a field for it: such a version
/// sends the query before it compiles the first program.
__attribute__((cold, noinline)) XLA_FFI_Error* answer_with_type(XLA_FFI_CallFrame* frame, const EntrySpec& entry,
                                                                StateRecord& record) noexcept {
  if (XLA_FFI_Error* error = know_type(frame, entry, record)) return error;
  if (be_xla::minor_version(frame) >= be_xla::kTypesDelete)
    be_xla::find_metadata(frame)->state_type = find_known(record, frame->api)->be_type;
  return nullptr;
}

/// An attribute of a call, with its row in the entry point's table; null without a row.
struct Declared {
  const AttrSpec* row;
  AttrKind kind;
  const char* choices;
  const void* value;
};

Declared find_declared(const Attributes& attributes, const char* name) noexcept {
  const EntrySpec& entry = attributes.be_entry;
  for (int i = 0; i < entry.attr_count; ++i) {
    const AttrSpec& row = entry.attrs[i];
    if (strcmp(row.name, name) != 0) continue;
    const AttrMore more = entry.more == nullptr ? AttrMore{} : entry.more[i];
    return {&row, more.be_kind, more.be_text, attributes.be_values[row.position]};
  }
  return {};
}

[[noreturn]] void throw_attribute(const Attributes& attributes, const char* name, const char* wanted) {
  const XLA_FFI_Attrs& attrs = attributes.be_frame->attrs;
  Message message;
  message.add("the state asks for the attribute %s as %s, but ", name, wanted);
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (attrs.names[i]->len != strlen(name) || memcmp(attrs.names[i]->ptr, name, attrs.names[i]->len) != 0) continue;
    print_attr(message.add("the call passes "), *attrs.names[i], attrs.types[i], attrs.attrs[i]);
    throw CheckError(message.text);
  }
  const bool is_known = find_declared(attributes, name).row != nullptr;
  throw CheckError(message.add(is_known ? "its default is none" : "the call has no attribute of this name").text);
}

}  // namespace
}  // namespace BE::detail

bool be_has_attribute(const BE::Attributes& attributes, const char* name) noexcept {
  return find_declared(attributes, name).row != nullptr;
}

void be_read_number(const BE::Attributes& attributes, const char* name, BE::DType dtype, void* value) {
  const Declared found = find_declared(attributes, name);
  XLA_FFI_DataType carried = XLA_FFI_DataType_INVALID;
  if (found.row != nullptr && found.kind == AttrKind::kNumber && found.row->parts == 0)
    carried = static_cast<XLA_FFI_DataType>(found.row->dtype);
  if (found.kind == AttrKind::kEnum) carried = XLA_FFI_DataType_S64;
  if (found.kind == AttrKind::kDType) carried = XLA_FFI_DataType_S32;
  const XLA_FFI_Scalar scalar{carried, const_cast<void*>(found.value)};
  if (!convert_scalar(scalar, BE::dtype_to_xla(dtype), value)) throw_attribute(attributes, name, BE::dtype_name(dtype));
}

const void* be_read_items(const BE::Attributes& attributes, const char* name, BE::DType dtype, size_t* count) {
  const Declared found = find_declared(attributes, name);
  const bool is_text = dtype == BE::DType::Invalid;
  if (is_text && found.kind == AttrKind::kString) {
    const Bytes* text = static_cast<const Bytes*>(found.value);
    *count = text->be_size;
    return text->be_data;
  }
  if (is_text && found.kind == AttrKind::kEnum) {
    const char* choice = found.choices;
    for (int64_t left = *static_cast<const int64_t*>(found.value); left > 0; --left) choice = strchr(choice, ' ') + 1;
    *count = strcspn(choice, " ");
    return choice;
  }
  const bool has_type = !is_text && found.row != nullptr && found.row->dtype == BE::dtype_to_xla(dtype);
  if (has_type && found.kind == AttrKind::kArray) {
    const Numbers* array = static_cast<const Numbers*>(found.value);
    *count = array->be_size;
    return array->be_data;
  }
  if (has_type && found.kind == AttrKind::kNumber && found.row->parts != 0) {
    *count = found.row->parts;
    return found.value;
  }
  Message wanted;
  wanted.add(is_text ? "string" : "array of %s", BE::dtype_name(dtype));
  throw_attribute(attributes, name, wanted.text);
}

/// Make the state of a call site, or answer XLA's metadata query. XLA calls this function when it compiles a program.
XLA_FFI_Error* be_instantiate(XLA_FFI_CallFrame* frame, const EntrySpec& entry, StateRecord& record) noexcept {
  if (be_answer(frame, 0)) return answer_with_type(frame, entry, record);
  const void** values = BE_STACK_ROOM(const void*, entry.attr_count + 1);
  int64_t* room = BE_STACK_ROOM(int64_t, entry.attr_count + 1);
  if (!be_match_attrs(frame, entry, values, room)) return fail_attrs(frame, entry);
  if (XLA_FFI_Error* error = know_type(frame, entry, record)) return error;  // before FFI 0.2, XLA does not query it
  void* state;
  try {
    state = record.be_make(BE::Attributes(frame, entry, values));
  } catch (...) {
    return be_caught(frame, entry);
  }
  StateRecord::Known& known = *find_known(record, frame->api);
  XLA_FFI_Error* error = call_with_state(frame, frame->api->XLA_FFI_State_Set, known, &state, record.be_delete);
  if (error != nullptr) record.be_delete(state);
  return error;
}

void* be_make_once(void** place, void* (*make)(const void*), const void* maker) {
  const MakingGuard guard;
  if (*place == nullptr) __atomic_store_n(place, make(maker), __ATOMIC_RELEASE);
  return *place;
}

__attribute__((cold, noinline)) static void throw_no_state(XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) {
  Message message;
  message.add("no state: %s",
              error == nullptr ? "its instantiate handler is not registered" : be_xla::message_of(frame, error));
  if (error != nullptr) be_xla::drop_error(frame, error);
  throw BE::CheckError(message.text);
}
BE_END_COLD

void* be_find_state(XLA_FFI_CallFrame* frame, StateRecord& record) {
  StateRecord::Known* known = record.be_known;
  if (__builtin_expect(__atomic_load_n(&known->be_api, __ATOMIC_ACQUIRE) != frame->api, 0)) {
    known = find_known(record, frame->api);
    if (known == nullptr || known->be_api == nullptr) throw_no_state(frame, nullptr);
  }
  void* state = nullptr;
  XLA_FFI_Error* error = call_with_state(frame, frame->api->XLA_FFI_State_Get, *known, &state, nullptr);
  if (__builtin_expect(error != nullptr, 0)) throw_no_state(frame, error);
  return state;
}
