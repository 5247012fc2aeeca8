#pragma once

/// \file
/// Text for error messages.
///
/// Every kernel is compiled with this header, so it uses compiler builtins in place of standard headers that would take
/// longer to compile than all of it: `<string>` takes 110 ms, `<cstdio>` 7 ms.

#include <new>

#include "brainevent/dtype.h"

// `<iosfwd>` would take longer to compile than this whole folder: it reads <cwchar> for three declarations.
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

namespace BE::internal {

/// A growing, reference-counted string that never throws.
///
/// Ownership: copies share the characters, so an exception holding a Text can be copied without
/// allocating. Append only while there is one owner. If memory is exhausted, the text
/// stays unchanged.
class Text {
 public:
  Text() noexcept = default;
  Text(const Text& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) __atomic_add_fetch(&block_->owners, 1, __ATOMIC_RELAXED);
  }
  Text(Text&& other) noexcept : block_(other.block_) { other.block_ = nullptr; }
  Text& operator=(Text other) noexcept {
    Block* mine = block_;
    block_ = other.block_;
    other.block_ = mine;
    return *this;
  }
  ~Text() { release(block_); }

  /// Null-terminated; valid while any owner lives.
  const char* c_str() const noexcept { return block_ != nullptr ? block_->chars() : ""; }
  size_t size() const noexcept { return block_ != nullptr ? block_->size : 0; }

  BE_COLD Text& append(const char* chars, size_t count) noexcept {
    if (!reserve(size() + count)) return *this;
    __builtin_memcpy(block_->chars() + block_->size, chars, count);
    block_->size += count;
    block_->chars()[block_->size] = '\0';
    return *this;
  }

  Text& append(const char* chars) noexcept {
    if (chars == nullptr) chars = "(null)";
    return append(chars, __builtin_strlen(chars));
  }
  Text& append(char* chars) noexcept { return append(static_cast<const char*>(chars)); }
  Text& append(char value) noexcept { return append(&value, 1); }
  Text& append(bool value) noexcept { return append(value ? "true" : "false"); }
  Text& append(decltype(nullptr)) noexcept { return append("nullptr"); }
  Text& append(DType value) noexcept { return append(dtype_name(value)); }

  /// The 8-bit integers read as numbers, not as characters.
  Text& append(signed char value) noexcept { return append(static_cast<long long>(value)); }
  Text& append(short value) noexcept { return append(static_cast<long long>(value)); }
  Text& append(int value) noexcept { return append(static_cast<long long>(value)); }
  Text& append(long value) noexcept { return append(static_cast<long long>(value)); }
  Text& append(unsigned char value) noexcept { return append_unsigned(value); }
  Text& append(unsigned short value) noexcept { return append_unsigned(value); }
  Text& append(unsigned int value) noexcept { return append_unsigned(value); }
  Text& append(unsigned long value) noexcept { return append_unsigned(value); }
  Text& append(unsigned long long value) noexcept { return append_unsigned(value); }
  Text& append(long long value) noexcept {
    const auto magnitude = static_cast<unsigned long long>(value);
    return value < 0 ? append('-').append_unsigned(0 - magnitude) : append_unsigned(magnitude);
  }

  /// As many digits as the type always preserves: 0.1 is printed as 0.1.
  Text& append(float value) noexcept { return append_real(value, __FLT_DIG__); }
  Text& append(double value) noexcept { return append_real(value, __DBL_DIG__); }
  Text& append(long double value) noexcept { return append_real(value, __LDBL_DIG__); }

  template <class T>
  Text& append(T* pointer) noexcept {
    return append("0x").append_unsigned(reinterpret_cast<uintptr_t>(pointer), 16);
  }

 private:
  struct Block {
    size_t size;
    size_t capacity;
    int owners;
    char* chars() noexcept { return reinterpret_cast<char*>(this + 1); }
  };

  BE_COLD static void release(Block* block) noexcept {
    if (block != nullptr && __atomic_sub_fetch(&block->owners, 1, __ATOMIC_ACQ_REL) == 0) ::operator delete(block);
  }

  BE_COLD bool reserve(size_t wanted) noexcept {
    if (block_ != nullptr && wanted <= block_->capacity) return true;
    const size_t capacity = wanted < 240 ? 240 : wanted * 2;
    void* memory = ::operator new(sizeof(Block) + capacity + 1, std::nothrow);
    if (memory == nullptr) return false;
    Block* grown = ::new (memory) Block{size(), capacity, 1};
    __builtin_memcpy(grown->chars(), c_str(), size() + 1);
    release(block_);
    block_ = grown;
    return true;
  }

  BE_COLD Text& append_unsigned(unsigned long long value, unsigned base = 10) noexcept {
    char digits[20];
    char* const end = digits + sizeof(digits);
    char* first = end;
    do {
      *--first = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return append(first, static_cast<size_t>(end - first));
  }

  BE_COLD Text& append_real(long double value, int digits) noexcept {
    char chars[64];
    const int count = __builtin_snprintf(chars, sizeof(chars), "%.*Lg", digits, value);
    return append(chars, static_cast<size_t>(count));
  }

  Block* block_ = nullptr;
};

// Writing any value that can be streamed, without an include of a stream header. Numbers, strings and pointers need
// nothing. For other types the user's own `operator<<(std::ostream&, const T&)` is called, provided the source includes
// `<ostream>`: everything about streams depends on a template parameter, so it is looked up at the first use.

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

// Ways to write a value, tried from the highest rank down.

/// `std::string`, `std::string_view` and similar classes.
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

/// Values that the user can stream, if the source includes `<ostream>`.
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

/// Values that need a cast: scoped enumerations, by number, and 16-bit floating types, which convert to many
/// types.
template <class T>
auto write_value(Text& text, const T& value, Rank<1>) -> decltype(static_cast<float>(value), void()) {
  if constexpr (__is_enum(T)) text.append(static_cast<__underlying_type(T)>(value));
  else text.append(static_cast<float>(value));
}

template <class T>
void write_value(Text&, const T&, Rank<0>) {
  static_assert(sizeof(T) == 0, "this type can't be printed: include <ostream>, and define operator<< for it");
}

template <class T>
void stream_to_text(Text& text, const T& value) {
  if constexpr (__is_class(T) || __is_union(T) || __is_enum(T)) write_value(text, value, Rank<5>());
  else text.append(value);
}

inline void stream_to_text(Text& text, DType value) { text.append(value); }

/// Apply a manipulator such as `std::endl`.
template <class Char>
void manipulate_text(Text& text, StdOstream<Char>& (*manipulator)(StdOstream<Char>&)) {
  TextBuffer<Char> buffer(text);
  StdOstream<Char> stream(&buffer);
  stream << manipulator;
}

}  // namespace BE::internal
