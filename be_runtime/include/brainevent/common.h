#pragma once

/// \file
/// `BE::Tensor`, `BE::Tensors`, `BE::Scalar`, `BE::Span`, `BE::Workspace`, `BE::DType`, the checks and the dispatch
/// macros. Most kernels need no other header.
///
/// A CUDA source includes `<cuda_runtime.h>` itself. A source that computes with floats of 16 or 8 bits, complex
/// numbers or elements of 2 or 4 bits includes `brainevent/dispatch.h`, which defines these types.

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
