#pragma once

/// \file
/// Text for error messages.
///
/// Every kernel is compiled with this header, so it uses compiler builtins where a standard
/// header would cost more than all of it: `<string>` is 110 ms, `<cstdio>` 7 ms.

#include <stddef.h>
#include <stdint.h>

#include <new>

#include "brainevent/dtype.h"

namespace BE {
namespace internal {

/// A growing, reference-counted string that never throws.
///
/// Ownership: copies share the characters, so an exception holding a Text can be copied without
/// allocating. Append only while there is one owner. When memory runs out the text stays as
/// it was.
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

  /// As many digits as the type holds for certain: 0.1 reads as 0.1.
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
    if (block != nullptr && __atomic_sub_fetch(&block->owners, 1, __ATOMIC_ACQ_REL) == 0) {
      ::operator delete(block);
    }
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

}  // namespace internal
}  // namespace BE
