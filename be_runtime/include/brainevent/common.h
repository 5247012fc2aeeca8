#pragma once

/// \file
/// What a kernel source includes: `BE::Tensor`, `BE::DType`, `BE::Workspace`, the checks and the dispatch macros.
///
/// A CUDA source includes `<cuda_runtime.h>` itself, before or after this header. Sources that compute with 16-bit or
/// complex elements also include `brainevent/dispatch.h`, whose types would cost every other build time.

#include "brainevent/check.h"
#include "brainevent/detail/entry.h"  // here, since what generated code needs is best read before the author's macros
#include "brainevent/dispatch_macros.h"
#include "brainevent/dtype.h"
#include "brainevent/tensor.h"
#include "brainevent/workspace.h"
