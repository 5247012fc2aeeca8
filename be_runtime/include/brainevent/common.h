#pragma once

/// \file
/// What a kernel source includes: `BE::Tensor`, `BE::Span`, `BE::DType`, `BE::Workspace`, the checks and the dispatch
/// macros.
///
/// A CUDA source includes `<cuda_runtime.h>` itself, before or after this header. The definitions of 16-bit and complex
/// types would cost every build time, so they are here only where be_runtime sees that a source names these types or a
/// dispatch over them. Other sources, such as an author's header, include `brainevent/dispatch.h`.

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"  // here, since what generated code needs is best read before the author's macros
#include "brainevent/dispatch_macros.h"
#include "brainevent/dtype.h"
#include "brainevent/span.h"
#include "brainevent/tensor.h"
#include "brainevent/workspace.h"

#if defined(BE_INTERNAL_NAMES_HALF)
#include "brainevent/half.h"
#endif
#if defined(BE_INTERNAL_NAMES_COMPLEX)
#include "brainevent/complex.h"
#endif
