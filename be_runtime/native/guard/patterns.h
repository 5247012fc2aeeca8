#pragma once

/// \file
/// Findings from the bytes of arrays, after runs of a kernel that differ in the bytes that it should not read.
///
/// The second run has the complements of the first one's bytes. A bit that was written with a definite value is equal
/// in both runs, so each bit that differs was not, and each byte that was never written differs.

#include "call.h"

namespace be_guard {

/// The bytes of a run: around arrays, in results before the run, and on the stack.
struct Fill {
  unsigned char base;
  unsigned char within;
  unsigned char stack;

  /// The byte around an array. Arrays differ in it, so that a copy from behind one to behind another shows.
  unsigned char around(size_t array) const { return static_cast<unsigned char>(base ^ (array % kKinds)); }
  bool is_around(unsigned char byte) const { return (base ^ byte) < kKinds; }

  static constexpr unsigned kKinds = 16;
};

constexpr Fill kFirst{0x9C, 0xCB, 0xA6}, kSecond{0x63, 0x34, 0x59};
static_assert((kFirst.base ^ kSecond.base) == 0xFF && (kFirst.within ^ kSecond.within) == 0xFF &&
              (kFirst.stack ^ kSecond.stack) == 0xFF);

/// Elements of an array that have something in common.
struct Elements {
  int64_t count = 0;
  int64_t first = -1;

  void add(int64_t element) {
    if (count++ == 0) first = element;
  }
};

/// How the results of two runs differ.
struct Differences {
  Elements unwritten;  ///< each byte that differs is one that both runs left
  Elements outside;    ///< each is a copy of one around an array
  Elements others;     ///< neither
};

/// Call `visit(element, first byte that differs)` for each element in which some bytes differ.
template <class Visit>
void each_difference(const Array& array, const unsigned char* a, const unsigned char* b, Visit visit) {
  const size_t size = array.bits / 8, in_byte = size != 0 ? 1 : 8 / array.bits;
  for (int64_t element = 0; element < array.elements; ++element) {
    const size_t index = static_cast<size_t>(element);
    size_t byte = size != 0 ? index * size : index / in_byte;
    if (size == 0) {
      if (((a[byte] ^ b[byte]) >> (index % in_byte * array.bits) & ((1u << array.bits) - 1)) == 0) continue;
    } else {
      if (memcmp(a + byte, b + byte, size) == 0) continue;
      while (a[byte] == b[byte]) ++byte;
    }
    visit(element, byte);
  }
}

inline Differences compare_runs(const Array& array, const unsigned char* a, const unsigned char* b) {
  Differences found;
  if (memcmp(a, b, array.bytes) == 0) return found;
  const size_t size = array.bits < 8 ? 1 : array.bits / 8;
  each_difference(array, a, b, [&](int64_t element, size_t byte) {
    const size_t end = byte / size * size + size;
    bool is_unwritten = true, is_outside = true;
    for (; byte < end; ++byte) {
      if (a[byte] == b[byte]) continue;
      is_unwritten &= a[byte] == kFirst.within && b[byte] == kSecond.within;
      is_outside &= kFirst.is_around(a[byte]) && (a[byte] ^ b[byte]) == 0xFF;
    }
    (is_unwritten ? found.unwritten : is_outside ? found.outside : found.others).add(element);
  });
  return found;
}

/// Find elements whose bytes all equal the fill.
inline Elements still_filled(const Array& array, const unsigned char* a, unsigned char fill) {
  const std::vector<unsigned char> other(array.bytes, static_cast<unsigned char>(fill ^ 0xFF));
  Elements found;
  const size_t size = array.bits < 8 ? 1 : array.bits / 8;
  // Each byte differs from the complement of the fill in all bits if, and only if, it is the fill.
  each_difference(array, a, other.data(), [&](int64_t element, size_t byte) {
    for (size_t i = 0; i < size; ++i)
      if (byte + i >= array.bytes || a[byte + i] != fill) return;
    found.add(element);
  });
  return found;
}

inline Elements changed(const Array& array, const unsigned char* a, const unsigned char* b) {
  Elements found;
  if (memcmp(a, b, array.bytes) != 0)
    each_difference(array, a, b, [&](int64_t element, size_t) { found.add(element); });
  return found;
}

/// Find the bytes around an array that were written, by their distance from the array's end or from its beginning.
///
/// \param step  1 for bytes behind the array, which begin at `at`; -1 for bytes before it, which end there
inline Elements written_around(const unsigned char* at, size_t size, int step, unsigned char fill) {
  Elements found;
  for (size_t i = 0; i < size; ++i)
    if ((step > 0 ? at[i] : at[-1 - static_cast<ptrdiff_t>(i)]) != fill) found.add(static_cast<int64_t>(i));
  return found;
}

/// The encoding of numbers that are not finite.
struct FloatFormat {
  int bits;            ///< of one number, of which a complex element has two; 0: all values are finite
  uint64_t mask;       ///< of the bits to compare
  uint64_t nan, last;  ///< the range of NaNs
  uint64_t infinity;
};

inline FloatFormat format_of(BE::DType dtype) {
  using BE::DType;
  const auto ieee = [](int bits, int mantissa_bits) {
    const uint64_t mask = ~uint64_t{0} >> (65 - bits), infinity = mask & ~((uint64_t{1} << mantissa_bits) - 1);
    return FloatFormat{bits, mask, infinity + 1, mask, infinity};
  };
  switch (dtype) {
    case DType::Float16: return ieee(16, 10);
    case DType::BFloat16: return ieee(16, 7);
    case DType::Float32:
    case DType::Complex64: return ieee(32, 23);
    case DType::Float64:
    case DType::Complex128: return ieee(64, 52);
    case DType::Float8E5M2: return ieee(8, 2);
    case DType::Float8E4M3: return ieee(8, 3);
    case DType::Float8E3M4: return ieee(8, 4);
    case DType::Float8E4M3FN: return {8, 0x7F, 0x7F, 0x7F, 0x100};
    case DType::Float8E4M3B11FNUZ:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E4M3FNUZ: return {8, 0xFF, 0x80, 0x80, 0x100};
    case DType::Float8E8M0FNU: return {8, 0xFF, 0xFF, 0xFF, 0x100};
    default: return {};
  }
}

struct NotFinite {
  Elements nan, infinity;

  const Elements& shown() const { return nan.count != 0 ? nan : infinity; }
  const char* name() const { return nan.count != 0 ? "NaN" : "infinity"; }
};

inline NotFinite find_not_finite(const Array& array, const unsigned char* data) {
  NotFinite found;
  const FloatFormat format = format_of(array.dtype);
  if (format.bits == 0) return found;
  const size_t size = static_cast<size_t>(format.bits) / 8;
  const int64_t parts = static_cast<int64_t>(array.bits) / format.bits;
  for (int64_t element = 0; element < array.elements; ++element) {
    bool is_nan = false, is_infinite = false;
    for (int64_t part = 0; part < parts; ++part) {
      uint64_t bits = 0;
      memcpy(&bits, data + static_cast<size_t>(element * parts + part) * size, size);
      bits &= format.mask;
      is_nan |= bits >= format.nan && bits <= format.last;
      is_infinite |= bits == format.infinity;
    }
    if (is_nan)
      found.nan.add(element);
    else if (is_infinite)
      found.infinity.add(element);
  }
  return found;
}

}  // namespace be_guard
