#pragma once

/// \file
/// The header that a kernel source includes: `BE::Tensor`, `BE::Scalar`, `BE::Span`, `BE::DType`, `BE::Workspace`, the
/// checks and the dispatch macros.
///
/// A CUDA source includes `<cuda_runtime.h>` itself, before or after this header. The definitions of 16-bit and complex
/// types would slow down every build, so they are here only where be_runtime finds that a source names these types or a
/// dispatch over them. Other sources, such as an author's header, include `brainevent/dispatch.h`.

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"  // here, so that the author's macros can't change it
#include "brainevent/dispatch_macros.h"
#include "brainevent/dtype.h"
#include "brainevent/scalar.h"
#include "brainevent/span.h"
#include "brainevent/tensor.h"
#include "brainevent/workspace.h"

#if defined(BE_INTERNAL_NAMES_HALF)
#include "brainevent/half.h"
#endif
#if defined(BE_INTERNAL_NAMES_COMPLEX)
#include "brainevent/complex.h"
#endif
