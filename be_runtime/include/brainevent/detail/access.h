#pragma once

/// \file
/// An access through a tensor that is not possible, as a checked build finds it on the host or on the device.

#include <stdint.h>

#include "brainevent/dtype.h"
#include "brainevent/portability.h"

namespace BE::internal {

struct Access {
  enum Kind : int { kFine, kType, kCount, kOutside };

  /// On the device, the first thread that writes it takes the record.
  int kind;
  bool through_at;
  bool on_device;
  int line;
  char file[160];
  /// The accessor as the compiler spells it, with `T`.
  char function[160];
  const void* data;
  DType dtype;
  /// The index and its axis' extent, or the numbers of indices and of axes.
  int64_t index, extent;
  int dimension;
  unsigned block[3], thread[3];
};

}  // namespace BE::internal

/// Compiled with the handler, not with every source: see brainevent/detail/access_error.h.
BE_INTERNAL_HIDDEN __attribute__((cold, noreturn)) void be_throw_access(const BE::internal::Access&);
