#pragma once

/// \file
/// Functions that NVIDIA's headers declare as built into nvcc, and that clang lacks. Included before every source that
/// clang compiles as CUDA.

#if defined(__clang__) && defined(__CUDA__) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700

/// The instruction behind `atomicCAS(unsigned short*, …)`, with which `atomicAdd(__nv_bfloat16*, …)` is made before
/// compute capability 9.0.
extern "C" __device__ inline unsigned short __usAtomicCAS(unsigned short* address, unsigned short compare,
                                                          unsigned short value) {
  unsigned short seen;
  asm volatile("atom.cas.b16 %0, [%1], %2, %3;" : "=h"(seen) : "l"(address), "h"(compare), "h"(value) : "memory");
  return seen;
}

#endif
