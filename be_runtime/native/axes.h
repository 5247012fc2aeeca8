#pragma once

/// \file
/// Compares the arrays of a call with the axes that an author declares for them: `arg[n k] arg[k] ret[n]`.

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"

namespace BE::detail {

/// Where an axis got its extent from.
struct BoundAxis {
  int64_t extent;
  /// The index among the arguments and results; -1 as long as the axis has no extent.
  int array;
  int axis;
};

/// The arrays of one call, and what is known of their axes so far.
struct AxesCheck {
  const Call& call;
  int args;
  const char* names;
  BoundAxis* bound;

  const Tensor& array(int index) const { return index < args ? call.be_args[index] : call.be_rets[index - args]; }

  internal::Text& name_array(internal::Text& text, int index) const {
    return text.append(index < args ? "argument " : "result ").append(index < args ? index : index - args);
  }

  internal::Text& name_axis(internal::Text& text, const BoundAxis& at) const {
    return name_array(text.append(at.extent).append(" in "), at.array).append(" (axis ").append(at.axis).append(")");
  }

  /// Appends one of the names, which are separated by spaces.
  internal::Text& name(internal::Text& text, int64_t number) const {
    const char* begin = names;
    for (; number > 0; ++begin) number -= *begin == ' ';
    size_t size = 0;
    while (begin[size] != 0 && begin[size] != ' ') ++size;
    return text.append(begin, size);
  }

  [[noreturn]] __attribute__((cold)) void fail_rank(int index, const AxesSpec& declared) const {
    const Tensor& tensor = array(index);
    internal::Text text;
    name_array(text, index).append(" has the shape (");
    for (int i = 0; i < tensor.ndim(); ++i) text.append(i == 0 ? "" : ", ").append(tensor.size(i));
    text.append(tensor.ndim() == 1 ? ",)" : ")").append(", but its axes are declared as [").append(declared.text).append("]");
    if (tensor.ndim() > declared.count && !declared.has_leading)
      text.append("; under jax.vmap, vmap_method=\"sequential\" calls the kernel for each element, and [...")
          .append(declared.count > 0 ? " " : "").append(declared.text).append("] says that it takes leading axes");
    throw CheckError(text);
  }

  [[noreturn]] __attribute__((cold)) void fail_extent(const BoundAxis& at, int64_t expected) const {
    internal::Text text;
    if (expected < 0) {
      name(text.append("axis "), ~expected).append(" is ");
      name_axis(name_axis(text, bound[~expected]).append(" and "), at);
    } else {
      name_axis(text.append("an axis is declared as ").append(expected).append(" and is "), at);
    }
    throw CheckError(text);
  }

  void check(int index, const AxesSpec& declared) const {
    const Tensor& tensor = array(index);
    const int leading = tensor.ndim() - declared.count;
    if (leading < 0 || (leading > 0 && !declared.has_leading)) fail_rank(index, declared);
    for (int i = 0; i < declared.count; ++i) {
      const BoundAxis at{tensor.size(leading + i), index, leading + i};
      const int64_t expected = declared.extents[i];
      if (expected >= 0) {
        if (at.extent != expected) fail_extent(at, expected);
      } else if (bound[~expected].array < 0) {
        bound[~expected] = at;
      } else if (bound[~expected].extent != at.extent) {
        fail_extent(at, expected);
      }
    }
  }

  /// Leading axes are the same in all arrays that have some.
  void check_leading(int first, int index, const AxesSpec* declared) const {
    const Tensor &one = array(first), &other = array(index);
    const int count = one.ndim() - declared[first].count;
    bool is_same = other.ndim() - declared[index].count == count;
    for (int i = 0; is_same && i < count; ++i) is_same = one.size(i) == other.size(i);
    if (is_same) return;
    internal::Text text;
    name_array(name_array(text.append("the leading axes of "), first).append(" and "), index).append(" differ");
    throw CheckError(text);
  }
};

}  // namespace BE::detail

/// Throws `CheckError` where an array has other axes than are declared.
///
/// \param declared  a row for each argument, then for each result
/// \param names  of the axes, with spaces between them
void be_check_axes(const BE::detail::Call& call, const BE::detail::AxesSpec* declared, int args, int rets,
                   const char* names) {
  using namespace BE::detail;
  int count = 1, first = -1;
  for (const char* at = names; *at != 0; ++at) count += *at == ' ';
  BoundAxis* bound = static_cast<BoundAxis*>(__builtin_alloca(sizeof(BoundAxis) * static_cast<size_t>(count)));
  for (int i = 0; i < count; ++i) bound[i] = BoundAxis{0, -1, 0};
  const AxesCheck check{call, args, names, bound};
  for (int index = 0; index < args + rets; ++index) {
    if (declared[index].text == nullptr) continue;
    check.check(index, declared[index]);
    if (!declared[index].has_leading) continue;
    if (first >= 0) check.check_leading(first, index, declared);
    else first = index;
  }
}
