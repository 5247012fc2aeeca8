#pragma once

/// \file
/// Writes any value that can be streamed into a `Text`, without a stream header of our own.
///
/// Numbers, strings and pointers need nothing. For other types the user's own
/// `operator<<(std::ostream&, const T&)` is called, provided the source includes `<ostream>`:
/// everything about streams hangs on a template parameter, so it is looked at on first use.

#include "brainevent/text.h"

// `<iosfwd>` would cost more than this whole folder: it reads <cwchar> for three declarations.
#if defined(__GLIBCXX__)
// clang-format off
namespace std _GLIBCXX_VISIBILITY(default) {
_GLIBCXX_BEGIN_NAMESPACE_VERSION
template <typename> struct char_traits;
template <typename, typename> class basic_ostream;
template <typename, typename> class basic_streambuf;
_GLIBCXX_END_NAMESPACE_VERSION
}  // namespace std
// clang-format on
#else
#include <iosfwd>
#endif

namespace BE {
namespace internal {

template <class Char>
using StdOstream = std::basic_ostream<Char, std::char_traits<Char>>;

/// A stream buffer that appends to a Text it does not own.
template <class Char>
class TextBuffer : public std::basic_streambuf<Char, std::char_traits<Char>> {
 public:
  explicit TextBuffer(Text& text) : text_(text) {}

 protected:
  using Traits = std::char_traits<Char>;
  using Int = typename Traits::int_type;

  Int overflow(Int value) override {
    if (!Traits::eq_int_type(value, Traits::eof())) text_.append(Traits::to_char_type(value));
    return Traits::not_eof(value);
  }

 private:
  Text& text_;
};

template <class T>
T&& a_value_of() noexcept;

void accepts_chars(const char*) noexcept;

/// Ways to write a value, tried from the highest rank down.
template <int kRank>
struct Rank : Rank<kRank - 1> {};
template <>
struct Rank<0> {};

/// `std::string`, `std::string_view` and their like.
template <class T>
auto write_value(Text& text, const T& value, Rank<5>)
    -> decltype(accepts_chars(value.data()), static_cast<size_t>(value.size()), void()) {
  text.append(value.data(), static_cast<size_t>(value.size()));
}

/// Exceptions.
template <class T>
auto write_value(Text& text, const T& value, Rank<4>) -> decltype(accepts_chars(value.what())) {
  text.append(static_cast<const char*>(value.what()));
}

/// Whatever the user can stream, if `<ostream>` is there.
template <class T, class Char = char, size_t = sizeof(StdOstream<Char>)>
auto write_value(Text& text, const T& value, Rank<3>) -> decltype(a_value_of<StdOstream<Char>&>() << value, void()) {
  TextBuffer<Char> buffer(text);
  StdOstream<Char> stream(&buffer);
  stream << value;
}

/// Classes and enumerations that convert to one kind of number or pointer.
template <class T>
auto write_value(Text& text, const T& value, Rank<2>) -> decltype(text.append(value), void()) {
  text.append(value);
}

/// What only a cast reads: scoped enumerations, by number, and 16-bit floating types, which convert to many types.
template <class T>
auto write_value(Text& text, const T& value, Rank<1>) -> decltype(static_cast<float>(value), void()) {
  if constexpr (__is_enum(T)) {
    text.append(static_cast<__underlying_type(T)>(value));
  } else {
    text.append(static_cast<float>(value));
  }
}

template <class T>
void write_value(Text&, const T&, Rank<0>) {
  static_assert(sizeof(T) == 0, "no way to print this type: include <ostream>, and define operator<< for it");
}

template <class T>
void stream_to_text(Text& text, const T& value) {
  if constexpr (__is_class(T) || __is_union(T) || __is_enum(T)) {
    write_value(text, value, Rank<5>());
  } else {
    text.append(value);
  }
}

inline void stream_to_text(Text& text, DType value) {
  text.append(value);
}

/// Applies a manipulator such as `std::endl`.
template <class Char>
void manipulate_text(Text& text, StdOstream<Char>& (*manipulator)(StdOstream<Char>&)) {
  TextBuffer<Char> buffer(text);
  StdOstream<Char> stream(&buffer);
  stream << manipulator;
}

}  // namespace internal
}  // namespace BE
