#pragma once

/// \file
/// NaN and infinity in arrays, by the bits of their elements.

#include <cstdint>
#include <cstring>

#include "arrays.h"
#include "patterns.h"

namespace be_guard {

/// How a type spells numbers that are not finite.
struct FloatFormat {
  enum Kind { kNone, kIeee, kAllOnes, kNegativeZero, kScale };
  Kind kind;          ///< kIeee has infinities; kAllOnes and kNegativeZero have a NaN alone; kScale is an exponent alone
  int mantissa_bits;  ///< below the exponent
  int part_bits;      ///< of one number; an element of a complex type has two
};

inline FloatFormat format_of(BE::DType dtype) {
  using BE::DType;
  switch (dtype) {
    case DType::Float16: return {FloatFormat::kIeee, 10, 16};
    case DType::BFloat16: return {FloatFormat::kIeee, 7, 16};
    case DType::Float32:
    case DType::Complex64: return {FloatFormat::kIeee, 23, 32};
    case DType::Float64:
    case DType::Complex128: return {FloatFormat::kIeee, 52, 64};
    case DType::Float8E5M2: return {FloatFormat::kIeee, 2, 8};
    case DType::Float8E4M3: return {FloatFormat::kIeee, 3, 8};
    case DType::Float8E3M4: return {FloatFormat::kIeee, 4, 8};
    case DType::Float8E4M3FN: return {FloatFormat::kAllOnes, 3, 8};
    case DType::Float8E4M3B11FNUZ:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E4M3FNUZ: return {FloatFormat::kNegativeZero, 0, 8};
    case DType::Float8E8M0FNU: return {FloatFormat::kScale, 0, 8};
    default: return {FloatFormat::kNone, 0, 8};
  }
}

struct NotFinite {
  Elements nan, infinity;
};

inline NotFinite find_not_finite(const Array& array, const unsigned char* data) {
  NotFinite found;
  const FloatFormat format = format_of(array.dtype);
  if (format.kind == FloatFormat::kNone) return found;
  const size_t size = static_cast<size_t>(format.part_bits) / 8;
  const int64_t parts = static_cast<int64_t>(array.bits) / format.part_bits;
  const uint64_t magnitude = ~uint64_t{0} >> (65 - format.part_bits);
  const uint64_t mantissa = (uint64_t{1} << format.mantissa_bits) - 1;
  for (int64_t element = 0; element < array.elements; ++element) {
    bool is_nan = false, is_infinite = false;
    for (int64_t part = 0; part < parts; ++part) {
      uint64_t bits = 0;
      memcpy(&bits, data + static_cast<size_t>(element * parts + part) * size, size);
      switch (format.kind) {
        case FloatFormat::kIeee:
          is_nan |= (bits & magnitude) > (magnitude & ~mantissa);
          is_infinite |= (bits & magnitude) == (magnitude & ~mantissa);
          break;
        case FloatFormat::kAllOnes: is_nan |= (bits & magnitude) == magnitude; break;
        case FloatFormat::kNegativeZero: is_nan |= bits == 0x80; break;
        case FloatFormat::kScale: is_nan |= bits == 0xFF; break;
        case FloatFormat::kNone: break;
      }
    }
    if (is_nan) found.nan.add(element);
    else if (is_infinite) found.infinity.add(element);
  }
  return found;
}

}  // namespace be_guard
