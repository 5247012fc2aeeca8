// The part of hip/hip_runtime.h that needs neither ROCm's headers nor its libraries of device code.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#define BE_HIP_AXIS(axis, value)                                 \
  __declspec(property(get = be_get_##axis)) unsigned int axis;   \
  static __device__ __forceinline__ unsigned int be_get_##axis() { \
    return value;                                                \
  }
#define BE_HIP_INDEX(name, builtin)                               \
  struct be_##name {                                              \
    BE_HIP_AXIS(x, builtin(x))                                    \
    BE_HIP_AXIS(y, builtin(y))                                    \
    BE_HIP_AXIS(z, builtin(z))                                    \
  };                                                              \
  extern const __device__ __attribute__((weak)) be_##name name;

#define BE_HIP_THREAD(axis) __builtin_amdgcn_workitem_id_##axis()
#define BE_HIP_BLOCK(axis) __builtin_amdgcn_workgroup_id_##axis()
#define BE_HIP_THREADS(axis) __builtin_amdgcn_workgroup_size_##axis()
#define BE_HIP_BLOCKS(axis) (__builtin_amdgcn_grid_size_##axis() / __builtin_amdgcn_workgroup_size_##axis())
BE_HIP_INDEX(threadIdx, BE_HIP_THREAD)
BE_HIP_INDEX(blockIdx, BE_HIP_BLOCK)
BE_HIP_INDEX(blockDim, BE_HIP_THREADS)
BE_HIP_INDEX(gridDim, BE_HIP_BLOCKS)

static __device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class T>
static __device__ __forceinline__ T atomicAdd(T* place, T value) {
  return __hip_atomic_fetch_add(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

#define BE_HIP_FLOAT(name) \
  static __device__ __forceinline__ float name##f(float x) { return __builtin_##name##f(x); }
#define BE_HIP_DOUBLE(name) \
  static __device__ __forceinline__ double name(double x) { return __builtin_##name(x); }
// clang calls a library for other functions of math.h, and for exp and log of a double.
BE_HIP_FLOAT(sqrt) BE_HIP_FLOAT(fabs) BE_HIP_FLOAT(floor) BE_HIP_FLOAT(ceil) BE_HIP_FLOAT(trunc) BE_HIP_FLOAT(rint)
BE_HIP_DOUBLE(sqrt) BE_HIP_DOUBLE(fabs) BE_HIP_DOUBLE(floor) BE_HIP_DOUBLE(ceil) BE_HIP_DOUBLE(trunc)
BE_HIP_DOUBLE(rint) BE_HIP_FLOAT(exp) BE_HIP_FLOAT(exp2) BE_HIP_FLOAT(log) BE_HIP_FLOAT(log2)
static __device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static __device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
static __device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
