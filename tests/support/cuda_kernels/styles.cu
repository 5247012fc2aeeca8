// The ways in which people write kernels and launchers. Entry point plus_N adds N.
#include <cuda_runtime.h>

#include "brainevent/common.h"

#define BLOCKS(n) (((n) + 63) / 64), 64, 0, (cudaStream_t)stream

namespace {

__global__ void in_anonymous_namespace(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1.0f;
}

}  // namespace

static __global__ void is_static(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 2.0f;
}

extern "C" __global__ void is_extern_c(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 3.0f;
}

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
  const int n = x.numel_checked_int();
  in_anonymous_namespace<<<BLOCKS(n)>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}

namespace deep::inside {

// @BE plus_2
void plus_2(const BE::Tensor& x, BE::Tensor& out, int64_t stream) {
  const int n = x.numel_checked_int();
  is_static<<<BLOCKS(n)>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}

}  // namespace deep::inside

//@BE plus_3
extern "C" void plus_3(BE::Tensor const x, BE::Tensor out, cudaStream_t stream) {
  const int n = x.numel_checked_int();
  is_extern_c<<<BLOCKS(n)>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}

namespace {

// @BE plus_4
void plus_4(const BE::Tensor x, BE::Tensor out, const int64_t stream) {
  const int n = x.numel_checked_int();
  is_template<64><<<BLOCKS(n)>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}

}  // namespace

#define DEFINE_PLUS(N)                                                                              \
  __global__ void plus_##N##_kernel(const float* x, float* out, int n) {                            \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;                                            \
    if (i < n) out[i] = x[i] + N;                                                                   \
  }                                                                                                 \
  void plus_##N(const BE::Tensor x, BE::Tensor out, int64_t stream) {                               \
    const int n = x.numel_checked_int();                                                            \
    plus_##N##_kernel<<<BLOCKS(n)>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);                \
    BE_CHECK_KERNEL_LAUNCH();                                                                       \
  }

// @BE plus_5
DEFINE_PLUS(5)
// @BE plus_6
DEFINE_PLUS(6)
