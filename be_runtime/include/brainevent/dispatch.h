#pragma once

/// \file
/// Everything in `brainevent/common.h`, `brainevent/half.h`, `brainevent/float8.h`, `brainevent/packed.h`,
/// `brainevent/complex.h` and `brainevent/dtypes.h`.

#include "brainevent/common.h"
#include "brainevent/dtypes.h"
