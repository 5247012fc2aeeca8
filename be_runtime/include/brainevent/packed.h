#pragma once

/// \file
/// Elements of 2 and 4 bits. A byte contains several elements, the first in the lowest bits. Rows follow each other
/// without gaps.
///
/// `BE::load_packed` and `BE::store_packed` read and write an element of an array. Each class `T` below is a byte of
/// `T::kCount` elements. The members `get(index)` and `set(index, value)` read and write one element of the byte. The
/// values have the type `T::value_type`.

#include "brainevent/float8.h"

namespace BE {
namespace internal {

/// An integer in the lowest bits of a byte, in two's complement where `Value` has a sign.
template <class Value, int kSize>
struct SmallInt {
  using value_type = Value;
  static constexpr int kBits = kSize;

  /// Keep the lowest bits of a value that is too large.
  static BE_HD constexpr uint8_t encode(Value value) noexcept { return static_cast<uint8_t>(value); }
  static BE_HD constexpr Value decode(uint32_t code) noexcept {
    return static_cast<Value>(static_cast<Value>(code << (8 - kBits)) >> (8 - kBits));
  }
};

/// A byte of several elements.
template <class Format>
struct Packed {
  using value_type = typename Format::value_type;
  /// Elements in a byte.
  static constexpr int kCount = 8 / Format::kBits;

  uint8_t bits;

  BE_HD value_type get(int index) const noexcept {
    return Format::decode(static_cast<uint32_t>(bits) >> (index * Format::kBits) & kMask);
  }
  BE_HD void set(int index, value_type value) noexcept {
    const int shift = index * Format::kBits;
    bits = static_cast<uint8_t>((bits & ~(kMask << shift)) | (Format::encode(value) & kMask) << shift);
  }

 private:
  static constexpr uint32_t kMask = (1u << Format::kBits) - 1;
};

}  // namespace internal

/// Four integers from -2 to 1, as `int8_t`. `set` keeps the lowest bits of a value.
struct int2x4_t : internal::Packed<internal::SmallInt<int8_t, 2>> {};
/// Four integers from 0 to 3, as `uint8_t`. `set` keeps the lowest bits of a value.
struct uint2x4_t : internal::Packed<internal::SmallInt<uint8_t, 2>> {};
/// Two integers from -8 to 7, as `int8_t`. `set` keeps the lowest bits of a value.
struct int4x2_t : internal::Packed<internal::SmallInt<int8_t, 4>> {};
/// Two integers from 0 to 15, as `uint8_t`. `set` keeps the lowest bits of a value.
struct uint4x2_t : internal::Packed<internal::SmallInt<uint8_t, 4>> {};
/// Two 4-bit floats, as `float`. `set` turns a value that is too large into 6, the largest number, and NaN into zero.
struct float4_e2m1fnx2_t : internal::Packed<internal::SmallFloat<2, 1, 1, internal::Specials::kNone>> {};

/// Return element `index` of an array of packed elements.
template <class T>
BE_HD typename T::value_type load_packed(const T* array, int64_t index) noexcept {
  return array[index / T::kCount].get(static_cast<int>(index % T::kCount));
}

/// Write element `index` of an array of packed elements. The function reads and writes the whole byte: make sure that
/// no two threads write to the same byte at the same time.
template <class T>
BE_HD void store_packed(T* array, int64_t index, typename T::value_type value) noexcept {
  array[index / T::kCount].set(static_cast<int>(index % T::kCount), value);
}

}  // namespace BE
