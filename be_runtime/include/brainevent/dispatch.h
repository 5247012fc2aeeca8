#pragma once

/// \file
/// All of `brainevent/common.h`, and the definitions of every element type that its dispatch macros name.

#include "brainevent/common.h"
#include "brainevent/dtypes.h"
