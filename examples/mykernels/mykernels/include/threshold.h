#pragma once

// Shared by the C++ files and the CUDA file.
#ifdef __CUDACC__
#define MYKERNELS_BOTH __host__ __device__
#else
#define MYKERNELS_BOTH
#endif

namespace mykernels {

/// 1 where a membrane potential reaches the threshold, else 0.
MYKERNELS_BOTH inline float spike(float potential, float threshold) { return potential >= threshold ? 1.0f : 0.0f; }

}  // namespace mykernels
