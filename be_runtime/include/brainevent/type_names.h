#pragma once

/// \file
/// Names of the C++ types of elements that are no built-in types.
///
/// Declarations only: `<cuda_fp16.h>` and `<cuda_bf16.h>` cost each build a third of a second. A name is enough for a
/// pointer; `brainevent/dtypes.h`, or CUDA's own headers, define the types.

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e5m2;
struct __nv_fp8x2_e5m2;
struct __nv_fp8x4_e5m2;
struct __nv_fp8_e4m3;
struct __nv_fp8x2_e4m3;
struct __nv_fp8x4_e4m3;
struct __nv_fp8_e8m0;
struct __nv_fp8x2_e8m0;
struct __nv_fp8x4_e8m0;
struct __nv_fp4x2_e2m1;
struct __nv_fp4x4_e2m1;

namespace BE {

#if defined(__CUDACC__)
using float16_t = ::__half;
using bfloat16_t = ::__nv_bfloat16;
#else
struct float16_t;
struct bfloat16_t;
#endif

template <class Real>
struct Complex;

using complex64_t = Complex<float>;
using complex128_t = Complex<double>;

struct float8_e5m2_t;
struct float8_e4m3fn_t;
struct float8_e4m3b11fnuz_t;
struct float8_e5m2fnuz_t;
struct float8_e4m3fnuz_t;
struct float8_e4m3_t;
struct float8_e3m4_t;
struct float8_e8m0fnu_t;

struct int2x4_t;
struct uint2x4_t;
struct int4x2_t;
struct uint4x2_t;
struct float4_e2m1fnx2_t;

}  // namespace BE
