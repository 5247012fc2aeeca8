#pragma once

#include "brainevent/torch_compat.h"
