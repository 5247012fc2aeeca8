#pragma once

/// \file
/// The index of an element, which knows its line in a checked build.

#include <stdint.h>

#include "brainevent/portability.h"

namespace BE {

#if defined(BE_INTERNAL_CHECKED)
/// An index, and the place in the source where it was written.
struct Index {
  BE_HD Index(int64_t number, const char* path = __builtin_FILE(), int at = __builtin_LINE()) noexcept  // NOLINT
      : value(number), file(path), line(at) {}
  BE_HD operator int64_t() const noexcept { return value; }  // NOLINT: implicit on purpose

  int64_t value;
  const char* file;
  int line;
};
#else
using Index = int64_t;
#endif

}  // namespace BE
