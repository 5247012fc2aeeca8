#pragma once

/// \file
/// `BE::Tensor`, `BE::Tensors`, `BE::Scalar`, `BE::Span`, `BE::Workspace`, `BE::DType`, the checks and the dispatch
/// macros. For 16-bit and 8-bit floats, complex numbers, and elements of 2 or 4 bits, include `brainevent/dispatch.h`
/// instead.

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"  // here, so that the author's macros can't change it
#include "brainevent/dispatch_macros.h"
#include "brainevent/dtype.h"
#include "brainevent/scalar.h"
#include "brainevent/span.h"
#include "brainevent/tensor.h"
#include "brainevent/workspace.h"

// These definitions would slow down every build, so a source gets them here only if its text names the types or a
// dispatch over them.
#if defined(BE_INTERNAL_NAMES_HALF)
#include "brainevent/half.h"
#endif
#if defined(BE_INTERNAL_NAMES_COMPLEX)
#include "brainevent/complex.h"
#endif
