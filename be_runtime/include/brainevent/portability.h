#pragma once

/// \file
/// Compiler differences, in one place.

/// Marks a function for the host and, under a CUDA compiler, for the device.
#if defined(__CUDACC__)
#define BE_HD __host__ __device__
#else
#define BE_HD
#endif

/// Defined while code for the GPU is being generated.
#if defined(__CUDA_ARCH__)
#define BE_DEVICE_PASS 1
#endif

/// A function on an error path: kept out of line, and out of the hot code's way.
#define BE_COLD __attribute__((cold, noinline))

/// A function that the handler defines once for all objects of a module.
#define BE_INTERNAL_HIDDEN extern "C" __attribute__((visibility("hidden")))
