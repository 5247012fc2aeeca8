#pragma once

/// \file
/// The bits of a float, and their rounding.

#include <stdint.h>

#include "brainevent/dtype.h"

namespace BE {
namespace internal {

template <class To, class From>
BE_HD inline To bits_as(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

/// Drops the lowest `count` bits, 1 to 31, rounding to nearest and ties to even. A carry into the exponent is right.
BE_HD constexpr uint32_t shift_right_rounded(uint32_t value, int count) noexcept {
  const uint32_t kept = value >> count;
  const uint32_t dropped = value & ((uint32_t{1} << count) - 1);
  const uint32_t half = uint32_t{1} << (count - 1);
  return kept + (dropped > half || (dropped == half && (kept & 1) != 0) ? 1 : 0);
}

}  // namespace internal
}  // namespace BE
