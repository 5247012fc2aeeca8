#pragma once

__device__ inline float transformed(float x) { return 3.0f * x; }
