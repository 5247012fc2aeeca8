#pragma once

/// \file
/// 16-bit floats. In a CUDA source, `BE::float16_t` is `__half` and `BE::bfloat16_t` is `__nv_bfloat16`, with the
/// operators of CUDA's headers. In a C++ source, both types are the classes below.

#include "brainevent/dtype.h"

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#else


namespace BE {

namespace internal {

/// binary32 to binary16: 8 exponent bits biased by 127 become 5 biased by 15, 23 fraction bits become 10.
inline uint16_t float_to_half_bits(float value) noexcept {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);  // NaN: quiet, keeping the upper payload
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000u) {
    half = shift_right_rounded(magnitude - (uint32_t{127 - 15} << 23), 13);  // 2^-14 and above are normal
  } else if (magnitude >= 0x33000000u) {
    const int exponent = static_cast<int>(magnitude >> 23);
    half = shift_right_rounded((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent);  // subnormal, in units of 2^-24
  }
  return static_cast<uint16_t>(sign | half);
}

/// Exact: every binary16 is a binary32.
inline float half_bits_to_float(uint16_t half) noexcept {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t widened = exponent == 0x1fu ? 0xffu : exponent + (127 - 15);
  return bits_as<float>(sign | widened << 23 | fraction << 13);
}

/// binary32 to bfloat16: the upper half of the bits, rounded.
inline uint16_t float_to_bfloat_bits(float value) noexcept {
  const uint32_t bits = bits_as<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40u : shift_right_rounded(bits, 16));
}

inline float bfloat_bits_to_float(uint16_t value) noexcept {
  return bits_as<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace internal

/// An IEEE binary16 number in a C++ source.
///
/// The class converts to and from `float`, so arithmetic is done in `float`. A conversion from `float` rounds to
/// nearest, ties to even. A `double` is rounded to `float` first.
struct float16_t {
  uint16_t bits;

  float16_t() noexcept = default;
  float16_t(float value) noexcept : bits(internal::float_to_half_bits(value)) {}
  operator float() const noexcept { return internal::half_bits_to_float(bits); }

  float16_t& operator+=(float other) noexcept { return *this = *this + other; }
  float16_t& operator-=(float other) noexcept { return *this = *this - other; }
  float16_t& operator*=(float other) noexcept { return *this = *this * other; }
  float16_t& operator/=(float other) noexcept { return *this = *this / other; }
};

/// A bfloat16 number in a C++ source: the upper 16 bits of a `float`. Arithmetic and rounding are the same as for
/// `float16_t`.
struct bfloat16_t {
  uint16_t bits;

  bfloat16_t() noexcept = default;
  bfloat16_t(float value) noexcept : bits(internal::float_to_bfloat_bits(value)) {}
  operator float() const noexcept { return internal::bfloat_bits_to_float(bits); }

  bfloat16_t& operator+=(float other) noexcept { return *this = *this + other; }
  bfloat16_t& operator-=(float other) noexcept { return *this = *this - other; }
  bfloat16_t& operator*=(float other) noexcept { return *this = *this * other; }
  bfloat16_t& operator/=(float other) noexcept { return *this = *this / other; }
};

}  // namespace BE

#endif  // defined(__CUDACC__)
