#pragma once

/// \file
/// Device functions for event-driven kernels, such as kernels of spiking networks. Include the header in CUDA sources
/// for GPUs of compute capability 6.0 or newer.
///
/// Most names end in the element type: f32, f64, f16 (`__half`), bf16 (`__nv_bfloat16`) or i32. Arithmetic on 16-bit
/// types is done in `float`. A function whose name is in capitals is also defined as a macro, so `#ifdef` finds the
/// function.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "brainevent/dispatch_macros.h"

/// The floating types: `X(suffix, SUFFIX, stored type, accumulator's type, conversion to it, conversion back)`.
#define BE_INTERNAL_EACH_FLOAT(X)                        \
  X(f32, F32, float, float, float, float)                \
  X(f64, F64, double, double, double, double)            \
  X(f16, F16, __half, float, __half2float, __float2half) \
  X(bf16, BF16, __nv_bfloat16, float, __bfloat162float, __float2bfloat16)

// ---- Reductions over a warp -----------------------------------------------------------------------------------------
//
// All 32 lanes must take part, and every lane receives the result. A sum first adds the values of lanes that are 16
// apart, then 8, 4, 2 and 1, so the rounding is the same in every run. A maximum or minimum is NaN only if all values
// are NaN.

namespace BE::internal {

template <class T, class Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

struct Sum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};

struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
  __device__ __forceinline__ int operator()(int a, int b) const { return a > b ? a : b; }
};

struct Min {
  __device__ __forceinline__ float operator()(float a, float b) const { return fminf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmin(a, b); }
  __device__ __forceinline__ int operator()(int a, int b) const { return a < b ? a : b; }
};

}  // namespace BE::internal

#define BE_INTERNAL_REDUCTION(name, Combine, type, widen, narrow)                    \
  __device__ __forceinline__ type name(type value) {                                 \
    return narrow(BE::internal::warp_reduce(widen(value), BE::internal::Combine())); \
  }
#define BE_INTERNAL_REDUCTIONS(suffix, SUFFIX, type, accumulator, widen, narrow) \
  BE_INTERNAL_REDUCTION(warp_reduce_sum_##suffix, Sum, type, widen, narrow)      \
  BE_INTERNAL_REDUCTION(warp_reduce_max_##suffix, Max, type, widen, narrow)      \
  BE_INTERNAL_REDUCTION(warp_reduce_min_##suffix, Min, type, widen, narrow)
BE_INTERNAL_EACH_FLOAT(BE_INTERNAL_REDUCTIONS)
BE_INTERNAL_REDUCTIONS(i32, I32, int, int, int, int)

// ---- Active values --------------------------------------------------------------------------------------------------
//
// By default, a value is active (an event) if the value is not 0, so negative values and NaN are active. If you load
// the module with `active="positive"`, a floating-point number is active only if the number is greater than 0, so NaN
// is not active. `IS_ACTIVE_BOOL` ignores this option. `IS_ACTIVE_F32(x)`, `IS_ACTIVE_FLOAT_F32(x)` and
// `IS_ACTIVE_FLOAT(x)` are equal for a `float` x.

template <class T>
__device__ __forceinline__ bool IS_ACTIVE_BOOL(T value) { return value != T(0); }
#ifdef BE_ACTIVE_POSITIVE
#define BE_INTERNAL_IS_ACTIVE(name, type, widen) \
  __device__ __forceinline__ bool name(type value) { return widen(value) > 0; }
#else
#define BE_INTERNAL_IS_ACTIVE(name, type, widen) \
  __device__ __forceinline__ bool name(type value) { return widen(value) != 0; }
#endif
#define BE_INTERNAL_ARE_ACTIVE(suffix, SUFFIX, type, accumulator, widen, narrow) \
  BE_INTERNAL_IS_ACTIVE(IS_ACTIVE_##SUFFIX, type, widen)                         \
  BE_INTERNAL_IS_ACTIVE(IS_ACTIVE_FLOAT, type, widen)                            \
  BE_INTERNAL_IS_ACTIVE(IS_ACTIVE_FLOAT_##SUFFIX, type, widen)
BE_INTERNAL_EACH_FLOAT(BE_INTERNAL_ARE_ACTIVE)

// ---- Conversions to the accumulator type, and back ------------------------------------------------------------------
//
// `READ_F16(x)` converts an element to its accumulator type, and `WRITE_F16(x)` converts back. `ZERO_F16` is the zero
// of the accumulator type.

#define BE_INTERNAL_CONVERSIONS(suffix, SUFFIX, type, accumulator, widen, narrow)            \
  __device__ __forceinline__ accumulator READ_##SUFFIX(type value) { return widen(value); } \
  __device__ __forceinline__ type WRITE_##SUFFIX(accumulator value) { return narrow(value); }
BE_INTERNAL_EACH_FLOAT(BE_INTERNAL_CONVERSIONS)

// Macros of the same names, so that `#ifdef` finds the functions.
#define IS_ACTIVE_BOOL IS_ACTIVE_BOOL
#define IS_ACTIVE_FLOAT IS_ACTIVE_FLOAT
#define IS_ACTIVE_F32 IS_ACTIVE_F32
#define IS_ACTIVE_F64 IS_ACTIVE_F64
#define IS_ACTIVE_F16 IS_ACTIVE_F16
#define IS_ACTIVE_BF16 IS_ACTIVE_BF16
#define IS_ACTIVE_FLOAT_F32 IS_ACTIVE_FLOAT_F32
#define IS_ACTIVE_FLOAT_F64 IS_ACTIVE_FLOAT_F64
#define IS_ACTIVE_FLOAT_F16 IS_ACTIVE_FLOAT_F16
#define IS_ACTIVE_FLOAT_BF16 IS_ACTIVE_FLOAT_BF16
#define READ_F32 READ_F32
#define READ_F64 READ_F64
#define READ_F16 READ_F16
#define READ_BF16 READ_BF16
#define WRITE_F32 WRITE_F32
#define WRITE_F64 WRITE_F64
#define WRITE_F16 WRITE_F16
#define WRITE_BF16 WRITE_BF16

#define ZERO_F32 0.0f
#define ZERO_F64 0.0
#define ZERO_F16 0.0f
#define ZERO_BF16 0.0f

// ---- Atomic addition ------------------------------------------------------------------------------------------------
//
// The functions add a value to an element that other threads of the device may change at the same time. The order of
// the additions, and so the rounding, may differ from run to run. The 16-bit versions round after every addition.

namespace BE::internal {

/// Add to a 16-bit element by exchanging the aligned 32-bit word around it, for GPUs without the instruction.
template <class Element, class Add>
__device__ __forceinline__ void atomic_add_in_word(Element* address, Add add) {
  static_assert(sizeof(Element) == 2, "half of a word");
  const auto location = reinterpret_cast<uintptr_t>(address);
  auto* const word = reinterpret_cast<unsigned int*>(location & ~uintptr_t{3});
  const unsigned int shift = (location & 2) != 0 ? 16 : 0;
  unsigned int seen = *word;
  unsigned int expected;
  do {
    expected = seen;
    const unsigned short sum = add(static_cast<unsigned short>(expected >> shift));
    const unsigned int replaced = (expected & ~(0xffffu << shift)) | (static_cast<unsigned int>(sum) << shift);
    seen = atomicCAS(word, expected, replaced);
  } while (seen != expected);
}

}  // namespace BE::internal

__device__ __forceinline__ void atomic_add_f32(float* address, float value) { atomicAdd(address, value); }

__device__ __forceinline__ void atomic_add_f64(double* address, double value) { atomicAdd(address, value); }

__device__ __forceinline__ void atomic_add_f16(__half* address, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
  BE::internal::atomic_add_in_word(address, [value](unsigned short bits) {
    return __half_as_ushort(__float2half(__half2float(__ushort_as_half(bits)) + value));
  });
#else
  atomicAdd(address, __float2half(value));
#endif
}

__device__ __forceinline__ void atomic_add_bf16(__nv_bfloat16* address, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  BE::internal::atomic_add_in_word(address, [value](unsigned short bits) {
    return __bfloat16_as_ushort(__float2bfloat16(__bfloat162float(__ushort_as_bfloat16(bits)) + value));
  });
#else
  atomicAdd(address, __float2bfloat16(value));
#endif
}

// ---- Launch sizes ---------------------------------------------------------------------------------------------------
//
// The names that contain `WARP_PER_ROW` are for kernels in which a warp processes one row at a time. The number of
// blocks is bounded, so each warp needs a loop:
//
//     for (int64_t row = blockIdx.x * BE_WARP_PER_ROW_WPB + threadIdx.x / 32; row < rows;
//          row += gridDim.x * BE_WARP_PER_ROW_WPB)

/// The number of warps in a block.
#define BE_WARP_PER_ROW_WPB 8

/// The number of threads in a block.
#define BE_WARP_PER_ROW_BLOCK (32 * BE_WARP_PER_ROW_WPB)

/// The maximum number of blocks.
#define BE_WARP_PER_ROW_MAX_GRID 4096

/// Return the number of blocks for `rows` rows, from 1 to `BE_WARP_PER_ROW_MAX_GRID`.
__host__ __device__ constexpr int be_warp_per_row_grid(int64_t rows) {
  const int64_t blocks = rows / BE_WARP_PER_ROW_WPB + (rows % BE_WARP_PER_ROW_WPB > 0);
  return blocks < 1 ? 1 : blocks > BE_WARP_PER_ROW_MAX_GRID ? BE_WARP_PER_ROW_MAX_GRID : static_cast<int>(blocks);
}

/// Return `be_warp_per_row_grid(rows)`.
#define BE_WARP_PER_ROW_GRID(rows) be_warp_per_row_grid(rows)

/// The number of rows that a block computes in a sparse-dense matrix product. Each warp computes 32 columns of one row.
#define CSRMM_WARP_RPB 4

/// The maximum number of blocks along the rows of a sparse-dense matrix product.
#define CSRMM_MAX_GRID_X 4096
