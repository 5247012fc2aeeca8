#pragma once

/// \file
/// The dispatch macros, and the definitions of every element type they name.

#include "brainevent/dispatch_macros.h"
#include "brainevent/dtypes.h"
