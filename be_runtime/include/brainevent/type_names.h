#pragma once

/// \file
/// Names of the C++ types of elements that are no built-in types.
///
/// Declarations only: `<cuda_fp16.h>` and `<cuda_bf16.h>` cost each build a third of a second. A name is enough for a
/// pointer; `brainevent/dtypes.h`, or CUDA's own headers, define the types.

struct __half;
struct __nv_bfloat16;

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

}  // namespace BE
