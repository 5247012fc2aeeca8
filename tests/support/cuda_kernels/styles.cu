// The ways in which people write kernels and launchers. Entry point plus_N adds N.
#include <cuda_runtime.h>

#include "brainevent/common.h"

#define BLOCKS(n) (((n) + 63) / 64), 64, 0, (cudaStream_t)stream
#define ARRAYS x.data_ptr<float>(), out.data_ptr<float>(), x.numel_checked_int()

__device__ void add(const float* x, float* out, int n, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + by;
}

namespace {

__global__ void in_anonymous_namespace(const float* x, float* out, int n) { add(x, out, n, 1.0f); }

}  // namespace

static __global__ void is_static(const float* x, float* out, int n) { add(x, out, n, 2.0f); }

extern "C" __global__ void is_extern_c(const float* x, float* out, int n) { add(x, out, n, 3.0f); }

__constant__ float kFour = 4.0f;

template <int kThreads>
__global__ void __launch_bounds__(kThreads) is_template(const float* __restrict__ x, float* __restrict__ out, int n) {
  __shared__ float tile[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x] + kFour;
}

// @BE plus_1 arg ret stream
static void plus_1(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  in_anonymous_namespace<<<BLOCKS(x.numel())>>>(ARRAYS);
}

namespace deep::inside {

// @BE plus_2
void plus_2(const BE::Tensor& x, BE::Tensor& out, int64_t stream) {
  is_static<<<BLOCKS(x.numel())>>>(ARRAYS);
}

}  // namespace deep::inside

//@BE plus_3
extern "C" void plus_3(BE::Tensor const x, BE::Tensor out, cudaStream_t stream) {
  is_extern_c<<<BLOCKS(x.numel())>>>(ARRAYS);
}

namespace {

// @BE plus_4
void plus_4(const BE::Tensor x, BE::Tensor out, const int64_t stream) {
  is_template<64><<<BLOCKS(x.numel())>>>(ARRAYS);
}

}  // namespace

#define DEFINE_PLUS(N)                                                                                     \
  __global__ void plus_##N##_kernel(const float* x, float* out, int n) { add(x, out, n, N); }              \
  void plus_##N(const BE::Tensor x, BE::Tensor out, int64_t stream) {                                      \
    plus_##N##_kernel<<<BLOCKS(x.numel())>>>(ARRAYS);                                                      \
    BE_CHECK_KERNEL_LAUNCH();                                                                              \
  }

// @BE plus_5
DEFINE_PLUS(5)
// @BE plus_6
DEFINE_PLUS(6)
