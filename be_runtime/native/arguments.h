#pragma once

/// \file
/// Checks of a call: its arrays are compared with the declared axes, such as `arg[n k] arg[k] ret[n]`; its attributes
/// are compared with the entry point's table, converted, and printed in messages.

#include <stdarg.h>

#include <limits>

#include "brainevent/detail/attr_values.h"
#include "brainevent/detail/xla_frame.h"
#include "xla_call.h"

// Code for invalid calls is not optimized: g++ would spend twice the handler's own time on it.
#if defined(__GNUC__) && !defined(__clang__)
#define BE_BEGIN_COLD _Pragma("GCC push_options") _Pragma("GCC optimize(\"O0\")")
#define BE_END_COLD _Pragma("GCC pop_options")
#else
#define BE_BEGIN_COLD
#define BE_END_COLD
#endif

BE_BEGIN_COLD
namespace BE::detail {

/// The array from which an axis got its extent.
struct BoundAxis {
  int64_t extent;
  /// The index among the arguments and results; -1 as long as the axis has no extent.
  int array;
  int axis;
};

/// Not inlined: each inlined copy of the error for an index out of range takes time to compile.
__attribute__((noinline)) int64_t extent(const Tensor& tensor, int axis) { return tensor.size(axis); }

/// Text of a limited length: appending to a `BE::internal::Text` here would take as long to compile as the handler.
struct Message {
  char text[1200] = "";
  int used = 0;

  __attribute__((cold, noinline, format(printf, 2, 3))) Message& add(const char* format, ...) noexcept {
    va_list values;
    va_start(values, format);
    const int room = static_cast<int>(sizeof(text)) - used;
    const int size = __builtin_vsnprintf(text + used, static_cast<size_t>(room), format, values);
    used += size < room ? size : room - 1;
    va_end(values);
    return *this;
  }
};

/// The arrays of one call, and the extents of their axes that are known so far.
struct AxesCheck {
  const Call& call;
  int args;
  const char* names;
  BoundAxis* bound;

  const Tensor& array(int index) const { return index < args ? call.be_args[index] : call.be_rets[index - args]; }
  const char* kind(int index) const { return index < args ? "argument" : "result"; }
  int place(int index) const { return index < args ? index : index - args; }

  void add_axis(Message& message, const BoundAxis& at) const noexcept {
    message.add("%ld in %s %d (axis %d)", at.extent, kind(at.array), place(at.array), at.axis);
  }

  [[noreturn]] __attribute__((cold, noinline)) void fail_rank(int index, const AxesSpec& declared) const {
    const Tensor& tensor = array(index);
    Message message;
    message.add("%s %d has the shape (", kind(index), place(index));
    for (int i = 0; i < tensor.ndim(); ++i) message.add(i == 0 ? "%ld" : ", %ld", extent(tensor, i));
    message.add("%s), but its axes are declared as [%s]", tensor.ndim() == 1 ? "," : "", declared.text);
    if (tensor.ndim() > declared.count && declared.leading == Leading::kNone)
      message.add("; under jax.vmap, vmap_method=\"sequential\" calls the kernel for each element, and [...%s%s] "
                  "declares leading axes", declared.count > 0 ? " " : "", declared.text);
    throw CheckError(message.text);
  }

  [[noreturn]] __attribute__((cold, noinline)) void fail_extent(const BoundAxis& at, int64_t expected) const {
    Message message;
    if (expected < 0) {
      const char* name = names;
      for (int64_t number = ~expected; number > 0; ++name) number -= *name == ' ';
      const char* end = name;
      while (*end != 0 && *end != ' ') ++end;
      message.add("axis %.*s is ", static_cast<int>(end - name), name);
      add_axis(message, bound[~expected]);
      message.add(" and ");
    } else {
      message.add("an axis is declared as %ld and is ", expected);
    }
    add_axis(message, at);
    throw CheckError(message.text);
  }

  [[noreturn]] __attribute__((cold, noinline)) void fail_computed(const BoundAxis& at, const AxesSpec& declared,
                                                                  int64_t expected) const {
    Message message;
    message.add("its axes are declared as [%s], which makes axis %d ", declared.text, at.axis);
    if (expected < 0) message.add("no extent");
    else message.add("%ld", expected);
    message.add(", and it is ");
    add_axis(message, at);
    throw CheckError(message.text);
  }

  /// Check axes that are expressions, after all names are bound.
  void check_computed(int index, const AxesSpec& declared, const int64_t* extents) const {
    const Tensor& tensor = array(index);
    for (int i = 0; i < declared.count; ++i) {
      if (declared.extents[i] != kComputed) continue;
      const int axis = tensor.ndim() - declared.count + i;
      const BoundAxis at{extent(tensor, axis), index, axis};
      const int64_t expected = declared.computed[i](extents, call);
      if (at.extent != expected) fail_computed(at, declared, expected);
    }
  }

  void check(int index, const AxesSpec& declared) const {
    const Tensor& tensor = array(index);
    const int leading = tensor.ndim() - declared.count;
    if (leading < 0 || (leading > 0 && declared.leading == Leading::kNone)) fail_rank(index, declared);
    for (int i = 0; i < declared.count; ++i) {
      const BoundAxis at{extent(tensor, leading + i), index, leading + i};
      const int64_t expected = declared.extents[i];
      if (expected == kComputed) continue;
      if (expected >= 0) {
        if (at.extent != expected) fail_extent(at, expected);
      } else if (bound[~expected].array < 0) {
        bound[~expected] = at;
      } else if (bound[~expected].extent != at.extent) {
        fail_extent(at, expected);
      }
    }
  }

  /// Check that two arrays have equal leading axes. Scratch memory has those of `vmap` only, which come first.
  void check_leading(int first, int index, const AxesSpec* declared) const {
    const Tensor &one = array(first), &other = array(index);
    const int most = one.ndim() - declared[first].count, count = other.ndim() - declared[index].count;
    bool is_same = declared[index].leading == Leading::kFirst ? count <= most : count == most;
    for (int i = 0; is_same && i < count; ++i) is_same = extent(one, i) == extent(other, i);
    if (is_same) return;
    Message message;
    message.add("the leading axes of %s %d and %s %d differ", kind(first), place(first), kind(index), place(index));
    throw CheckError(message.text);
  }
};

}  // namespace BE::detail

using namespace BE::detail;

/// Throw `CheckError` if the axes of an array differ from the declared axes.
///
/// \param declared  a row for each argument, then for each result
/// \param names  names of the axes, separated by spaces
void be_check_axes(const Call& call, const AxesSpec* declared, int args, int rets, const char* names) {
  int count = 1, first = -1;
  for (const char* at = names; *at != 0; ++at) count += *at == ' ';
  BoundAxis* bound = BE_STACK_ROOM(BoundAxis, count);
  for (int i = 0; i < count; ++i) bound[i] = BoundAxis{0, -1, 0};
  const AxesCheck check{call, args, names, bound};
  for (int index = 0; index < args + rets; ++index) {
    if (declared[index].text == nullptr) continue;
    check.check(index, declared[index]);
    if (declared[index].leading == Leading::kNone) continue;
    if (first >= 0) check.check_leading(first, index, declared);
    else first = index;
  }
  int64_t* extents = BE_STACK_ROOM(int64_t, count);
  for (int i = 0; i < count; ++i) extents[i] = bound[i].extent;
  for (int index = 0; index < args + rets; ++index)
    if (declared[index].computed != nullptr) check.check_computed(index, declared[index], extents);
}

/// Return the result of an operation on extents; `kComputed` if there is none. `|` divides without a remainder, `/`
/// rounds down, and `^` rounds up.
__attribute__((cold)) int64_t be_compute(char operation, int64_t a, int64_t b) noexcept {
  constexpr int64_t kNone = kComputed;
  int64_t result = kNone;
  if (a == kNone || b == kNone) return kNone;
  const bool divides = operation == '/' || operation == '|' || operation == '^' || operation == '%';
  if (divides && (b == 0 || b == -1)) return b == 0 ? kNone : operation == '%' ? 0 : -a;
  const int64_t down = divides ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
  bool overflows = false;
  switch (operation) {
    case '+': overflows = __builtin_add_overflow(a, b, &result); break;
    case '-': overflows = __builtin_sub_overflow(a, b, &result); break;
    case '*': overflows = __builtin_mul_overflow(a, b, &result); break;
    case '/': result = down; break;
    case '^': result = down + (a % b != 0); break;
    case '|': result = a % b == 0 ? down : kNone; break;
    case '%': result = a - down * b; break;
    case '<': result = a < b ? a : b; break;
    case '>': result = a > b ? a : b; break;
    default: break;
  }
  return overflows ? kNone : result;
}
BE_END_COLD

namespace BE::detail {
namespace {

using be_xla::fail, be_xla::kInvalid;

static_assert(sizeof(XLA_FFI_ByteSpan) == sizeof(Bytes) && offsetof(XLA_FFI_ByteSpan, len) == offsetof(Bytes, be_size));
static_assert(offsetof(XLA_FFI_Array, size) == offsetof(Numbers, be_size));
static_assert(offsetof(XLA_FFI_Array, data) == offsetof(Numbers, be_data));

/// Return the name of one of XLA's element types, for messages.
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
template <class T>
long double number_at(const void* value) noexcept {
  T number;
  memcpy(&number, value, sizeof(T));
  return static_cast<long double>(number);
}

/// Write a number as a T; false if a T can't hold it. With `may_round`, a T that has fractions may round it.
template <class T>
bool write_number(long double number, bool may_round, void* room) noexcept {
  using Limits = std::numeric_limits<T>;
  const bool is_finite = number - number == 0;
  if (is_finite ? number < Limits::lowest() || number > Limits::max() : Limits::is_integer) return false;
  const T value = static_cast<T>(number);
  if (is_finite && static_cast<long double>(value) != number && (!may_round || Limits::is_integer)) return false;
  memcpy(room, &value, sizeof(T));
  return true;
}

/// Run `DO` with the C++ type of a scalar attribute.
#define BE_WITH_SCALAR_TYPE(DTYPE, DO)             \
  switch (DTYPE) {                                 \
    BE_INTERNAL_BOOL_TYPES(BE_SCALAR_CASE, DO)     \
    BE_INTERNAL_INTEGRAL_TYPES(BE_SCALAR_CASE, DO) \
    BE_INTERNAL_FLOATING_TYPES(BE_SCALAR_CASE, DO) \
    default: break;                                \
  }
#define BE_SCALAR_CASE(dtype, value, type, name, bits, xla, code, DO) \
  case XLA_FFI_DataType_##xla: DO(type);

bool is_real(XLA_FFI_DataType dtype) noexcept { return dtype == XLA_FFI_DataType_F32 || dtype == XLA_FFI_DataType_F64; }

/// Read the value of a scalar attribute as a type that holds all integers of 64 bits; false if it is not a number.
bool read_scalar(const XLA_FFI_Scalar& scalar, long double* number) noexcept {
#define BE_READ(T)                      \
  *number = number_at<T>(scalar.value); \
  return true
  BE_WITH_SCALAR_TYPE(scalar.dtype, BE_READ)
  return false;
}

/// Convert a scalar attribute to another type; false if the type can't hold it. JAX passes `2.0` as a float64 and `2`
/// as an int64, but treats both, and `np.float32(2.0)`, as equal when it searches for a compiled program.
__attribute__((cold, noinline)) bool convert_scalar(const XLA_FFI_Scalar& scalar, XLA_FFI_DataType dtype,
                                                    void* room) noexcept {
  long double number;
  if (!read_scalar(scalar, &number)) return false;
  const bool may_round = is_real(scalar.dtype);
#define BE_WRITE(T) return write_number<T>(number, may_round, room)
  BE_WITH_SCALAR_TYPE(dtype, BE_WRITE)
  return false;
}

/// Print an attribute of a call: its name, its type and, if it is a number or a text, its value.
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

/// Print the expected attributes and the attributes that a call passes.
void print_attrs(Message& message, const char* expected, const XLA_FFI_Attrs& attrs) noexcept {
  message.add("(%.600s), but the call passes (%s", expected, attrs.size == 0 ? "none" : "");
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (i != 0) message.add(", ");
    print_attr(message, *attrs.names[i], attrs.types[i], attrs.attrs[i]);
  }
  message.add(")");
}

/// Make an error that names the attributes that the entry point takes and that the call passes.
__attribute__((cold)) XLA_FFI_Error* fail_attrs(const XLA_FFI_CallFrame* frame, const EntrySpec& entry) noexcept {
  Message message;
  print_attrs(message, entry.usage, frame->attrs);
  return fail(frame, kInvalid, "%s: takes the attributes %s", entry.name, message.text);
}

BE_END_COLD
/// Return the bytes of an attribute of a call, in `room` if it is converted; null if it is not as expected.
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

/// Return the index of a name in a list with spaces between names; -1 if the list lacks it.
int64_t index_among(const char* names, const XLA_FFI_ByteSpan& name) noexcept {
  for (int64_t index = 0;; ++index) {
    const char* end = names;
    while (*end != ' ' && *end != 0) ++end;
    if (name.len == static_cast<size_t>(end - names) && memcmp(name.ptr, names, name.len) == 0) return index;
    if (*end == 0) return -1;
    names = end + 1;
  }
}

/// Do the work of `attr_value` for any attribute.
__attribute__((noinline)) const void* any_value(XLA_FFI_AttrType type, const void* attr, const AttrSpec& expected,
                                                const AttrMore& more, int64_t* room) noexcept {
  switch (more.be_kind) {
    case AttrKind::kString: return type == XLA_FFI_AttrType_STRING ? attr : nullptr;
    case AttrKind::kStruct: return type == XLA_FFI_AttrType_DICTIONARY ? attr : nullptr;
    case AttrKind::kArray: {
      const XLA_FFI_Array* array = static_cast<const XLA_FFI_Array*>(attr);
      const bool fits = type == XLA_FFI_AttrType_ARRAY && array->dtype == static_cast<XLA_FFI_DataType>(expected.dtype);
      return fits && array->size % static_cast<size_t>(more.be_count) == 0 ? attr : nullptr;
    }
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

/// Point `values` at attributes of which some may be left out; false if they are not as expected. Both sides are
/// sorted by name.
__attribute__((noinline)) bool merge_attrs(const XLA_FFI_Attrs& attrs, const AttrSpec* expected, const AttrMore* more,
                                           int count, const void** values, int64_t* room) noexcept {
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

}  // namespace
}  // namespace BE::detail

/// Point `values` at the call's attributes in the order of the parameters; false if they are not the expected ones.
///
/// A fast path for numbers that every call passes comes first, since most attributes are such numbers.
///
/// \param room  a word for each attribute, for converted values
bool be_match_attrs(const XLA_FFI_CallFrame* frame, const EntrySpec& entry, const void** values,
                    int64_t* room) noexcept {
  if (match_numbers(frame->attrs, entry, values, room)) return true;
  return entry.more != nullptr && merge_attrs(frame->attrs, entry.attrs, entry.more, entry.attr_count, values, room);
}

BE_BEGIN_COLD
/// Read the fields of a structure. Not optimized, like all code for dictionaries and declared axes.
void be_read_struct(const void* attr, const char* name, const AttrMore& more, const void** values, int64_t* room) {
  static constexpr XLA_FFI_Attrs kNone{};
  const bool is_left_out = attr == more.be_fields;
  const XLA_FFI_Attrs& attrs = is_left_out ? kNone : *static_cast<const XLA_FFI_Attrs*>(attr);
  if (merge_attrs(attrs, more.be_fields, more.be_more, more.be_count, values, room)) return;
  Message message;
  message.add("%.100s takes the fields ", name);
  print_attrs(message, more.be_text, attrs);
  throw BE::CheckError(message.text);
}

BE_END_COLD
