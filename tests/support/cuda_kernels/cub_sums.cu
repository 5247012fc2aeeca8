// CUB: a device-wide sum whose scratch memory is a result of the call, and a sum within each block.
#include <cuda_runtime.h>

#include <cub/block/block_reduce.cuh>
#include <cub/device/device_reduce.cuh>

#include "brainevent/common.h"

// @BE device_sum
void device_sum(const BE::Tensor x, BE::Tensor out, BE::Tensor scratch, cudaStream_t stream) {
  const float* const in = x.data_ptr<float>();
  const int n = x.numel_checked_int();
  size_t needed = 0;
  BE_CUDA_CHECK(cub::DeviceReduce::Sum(nullptr, needed, in, out.data_ptr<float>(), n, stream));
  BE_CHECK(needed <= scratch.nbytes()) << "needs " << needed << " bytes of scratch memory";
  BE_CUDA_CHECK(cub::DeviceReduce::Sum(scratch.data_ptr(), needed, in, out.data_ptr<float>(), n, stream));
}

constexpr int kThreads = 128;

__global__ void row_sums_kernel(const float* x, float* out, int columns) {
  using Reduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = 0.0f;
  for (int j = threadIdx.x; j < columns; j += kThreads) sum += x[int64_t(blockIdx.x) * columns + j];
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// @BE row_sums
void row_sums(const BE::Tensor x, BE::Tensor out, cudaStream_t stream) {
  row_sums_kernel<<<unsigned(x.size(0)), kThreads, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(),
                                                                int(x.size(1)));
}
