#pragma once

/// \file
/// 8-bit floats. Each type has one member, the byte `bits`, and converts to and from `float`, on the host and in device
/// code. Arithmetic is done in `float`.
///
/// Conversions round as JAX does: a number that is too large becomes infinity, or NaN in a format without infinity. In
/// `float8_e8m0fnu_t`, zero and negative numbers become NaN, too.
///
/// For three of the eight formats, CUDA's header `<cuda_fp8.h>` defines other types, such as `__nv_fp8_e4m3`.
/// Conversions to CUDA's types turn a number that is too large into the largest number of the format, and take one
/// instruction on GPUs that support the conversion. `data_ptr<__nv_fp8_e4m3>()` returns a pointer to a CUDA type.

#include "brainevent/dtype.h"

namespace BE {
namespace internal {

/// The encoding of infinity and NaN in a format of few bits.
enum class Specials {
  kIeee,  ///< the highest exponent is for infinity and NaNs
  kFn,    ///< no infinity; NaN has all bits but the sign
  kFnuz,  ///< no infinity and no minus zero, whose code is NaN's
  kNone,  ///< neither
};

/// A sign, an exponent and a fraction in the lowest bits of a byte.
template <int kExponentBits, int kFractionBits, int kBias, Specials kSpecials>
struct SmallFloat {
  using value_type = float;
  static constexpr int kBits = 1 + kExponentBits + kFractionBits;

  /// Round to nearest, ties to even.
  static BE_HD uint8_t encode(float value) noexcept {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t sign = bits >> 31 << (kBits - 1);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint8_t>(kSpecials == Specials::kFnuz ? kNan : kNan ^ sign);
    uint32_t code = 0;
    if (magnitude >= kRebias + (1u << 23)) {
      code = shift_right_rounded(magnitude - kRebias, kShift);
    } else {  // in units of the smallest number; a value that loses 25 bits is less than half of one
      const int count = 151 - kBias - kFractionBits - static_cast<int>(magnitude >> 23);
      code = shift_right_rounded((magnitude & 0x7fffffu) | 0x800000u, count < 25 ? count : 25);
    }
    if (code > kLargest) code = kOverflow;
    return static_cast<uint8_t>(kSpecials == Specials::kFnuz && (code == 0 || code == kNan) ? code : code | sign);
  }

  /// Return the exact value: every code is a float.
  static BE_HD float decode(uint32_t code) noexcept {
    const uint32_t magnitude = code & (kSign - 1);
    const uint32_t sign = (code & kSign) << (32 - kBits);
    if (is_special(code)) return bits_as<float>(sign | 0x7f800000u | (magnitude == kInfinity ? 0 : 0x400000u));
    if (magnitude >> kFractionBits != 0) return bits_as<float>(sign | ((magnitude << kShift) + kRebias));
    const float small = static_cast<float>(magnitude) * bits_as<float>((128u - kBias - kFractionBits) << 23);
    return sign != 0 ? -small : small;
  }

 private:
  static constexpr int kShift = 23 - kFractionBits;
  static constexpr uint32_t kRebias = (127u - kBias) << 23;
  static constexpr uint32_t kSign = 1u << (kBits - 1);
  static constexpr bool kIsIeee = kSpecials == Specials::kIeee, kIsFn = kSpecials == Specials::kFn;
  /// No code if the format has no infinity.
  static constexpr uint32_t kInfinity = kIsIeee ? kSign - (1u << kFractionBits) : ~0u;
  /// Without its sign; minus zero if the format has no NaN.
  static constexpr uint32_t kNan = kIsIeee ? kInfinity | (1u << (kFractionBits - 1)) : kIsFn ? kSign - 1 : kSign;
  static constexpr uint32_t kLargest = kIsIeee ? kInfinity - 1 : kIsFn ? kSign - 2 : kSign - 1;
  static constexpr uint32_t kOverflow = kIsIeee ? kInfinity : kSpecials == Specials::kNone ? kLargest : kNan;

  static BE_HD constexpr bool is_special(uint32_t code) noexcept {
    if (kIsIeee || kIsFn) return (code & (kSign - 1)) >= (kIsIeee ? kInfinity : kNan);
    return kSpecials == Specials::kFnuz && code == kNan;
  }
};

/// A power of two from 2^-127 to 2^127, or NaN: the exponent of a float and nothing else.
struct PowerOfTwo {
  /// Round up from one and a half times a power, and any value between 2^-127 and 2^-126; zero and negative numbers
  /// become NaN.
  static BE_HD uint8_t encode(float value) noexcept {
    const uint32_t bits = bits_as<uint32_t>(value);
    if (bits == 0 || bits >= 0x7f800000u) return 0xff;
    return static_cast<uint8_t>(bits <= 0x400000u ? 0 : (bits + 0x400000u) >> 23);
  }
  static BE_HD float decode(uint32_t code) noexcept {
    return bits_as<float>(code == 0 ? 0x400000u : code == 0xff ? 0x7fc00000u : code << 23);
  }
};

/// A byte that is a float. Arithmetic is float's.
template <class Format>
struct Float8 {
  uint8_t bits;

  Float8() noexcept = default;
  BE_HD Float8(float value) noexcept : bits(Format::encode(value)) {}
  BE_HD operator float() const noexcept { return Format::decode(bits); }
};

}  // namespace internal

/// A row for each type: the bits of its exponent and of its fraction, the exponent's bias, and its special numbers.
#define BE_INTERNAL_FLOAT8(type, ...)                     \
  struct type : internal::Float8<internal::__VA_ARGS__> { \
    using Float8::Float8;                                 \
  };
BE_INTERNAL_FLOAT8(float8_e5m2_t, SmallFloat<5, 2, 15, internal::Specials::kIeee>)
BE_INTERNAL_FLOAT8(float8_e4m3fn_t, SmallFloat<4, 3, 7, internal::Specials::kFn>)
BE_INTERNAL_FLOAT8(float8_e4m3b11fnuz_t, SmallFloat<4, 3, 11, internal::Specials::kFnuz>)
BE_INTERNAL_FLOAT8(float8_e5m2fnuz_t, SmallFloat<5, 2, 16, internal::Specials::kFnuz>)
BE_INTERNAL_FLOAT8(float8_e4m3fnuz_t, SmallFloat<4, 3, 8, internal::Specials::kFnuz>)
BE_INTERNAL_FLOAT8(float8_e4m3_t, SmallFloat<4, 3, 7, internal::Specials::kIeee>)
BE_INTERNAL_FLOAT8(float8_e3m4_t, SmallFloat<3, 4, 3, internal::Specials::kIeee>)
BE_INTERNAL_FLOAT8(float8_e8m0fnu_t, PowerOfTwo)

}  // namespace BE
