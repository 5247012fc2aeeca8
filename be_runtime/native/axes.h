#pragma once

/// \file
/// The arrays of a call, compared with the axes that an author declares for them: `arg[n k] arg[k] ret[n]`.

#include <stdarg.h>

#include "brainevent/detail/entry.h"
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

/// Compiled once: the error for an index out of range takes a while each time it is inlined.
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
    for (int i = 0; i < tensor.ndim(); ++i)
      message.add(i == 0 ? "%ld" : ", %ld", extent(tensor, i));
    message.add("%s), but its axes are declared as [%s]", tensor.ndim() == 1 ? "," : "", declared.text);
    if (tensor.ndim() > declared.count && !declared.has_leading)
      message.add("; under jax.vmap, vmap_method=\"sequential\" calls the kernel for each element, and [...%s%s] says "
                  "that it takes leading axes", declared.count > 0 ? " " : "", declared.text);
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

  /// Check axes that are expressions, when all names are bound.
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
    if (leading < 0 || (leading > 0 && !declared.has_leading)) fail_rank(index, declared);
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

  /// Check that leading axes are the same in all arrays that have some.
  void check_leading(int first, int index, const AxesSpec* declared) const {
    const Tensor &one = array(first), &other = array(index);
    const int count = one.ndim() - declared[first].count;
    bool is_same = other.ndim() - declared[index].count == count;
    for (int i = 0; is_same && i < count; ++i) is_same = extent(one, i) == extent(other, i);
    if (is_same) return;
    Message message;
    message.add("the leading axes of %s %d and %s %d differ", kind(first), place(first), kind(index), place(index));
    throw CheckError(message.text);
  }
};

}  // namespace BE::detail

using namespace BE::detail;

/// Throw `CheckError` if an array has other axes than are declared.
///
/// \param declared  a row for each argument, then for each result
/// \param names  of the axes, with spaces between them
void be_check_axes(const Call& call, const AxesSpec* declared, int args, int rets, const char* names) {
  int count = 1, first = -1;
  for (const char* at = names; *at != 0; ++at) count += *at == ' ';
  BoundAxis* bound = BE_STACK_ROOM(BoundAxis, count);
  for (int i = 0; i < count; ++i) bound[i] = BoundAxis{0, -1, 0};
  const AxesCheck check{call, args, names, bound};
  for (int index = 0; index < args + rets; ++index) {
    if (declared[index].text == nullptr) continue;
    check.check(index, declared[index]);
    if (!declared[index].has_leading) continue;
    if (first >= 0) check.check_leading(first, index, declared);
    else first = index;
  }
  int64_t* extents = BE_STACK_ROOM(int64_t, count);
  for (int i = 0; i < count; ++i) extents[i] = bound[i].extent;
  for (int index = 0; index < args + rets; ++index)
    if (declared[index].computed != nullptr) check.check_computed(index, declared[index], extents);
}

/// Compute with extents; `kComputed` if there is no result. `|` divides without a remainder, `/` rounds down, and `^`
/// rounds up.
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
