// The product of a CSR matrix and a vector. THREADS lanes share a row, and a block has BLOCK threads.
#include <cuda_runtime.h>

#include "brainevent/common.h"

#ifndef THREADS
#define THREADS 32
#define BLOCK 256
#endif

__global__ void __launch_bounds__(BLOCK) csr_rows(const int* __restrict__ starts, const int* __restrict__ columns,
                                                  const float* __restrict__ values, const float* __restrict__ x,
                                                  float* __restrict__ y, int n) {
  const int row = (blockIdx.x * BLOCK + threadIdx.x) / THREADS, lane = threadIdx.x % THREADS;
  if (row >= n) return;  // all lanes of a row alike
  float sum = 0;
  for (int i = starts[row] + lane; i < starts[row + 1]; i += THREADS) sum += values[i] * x[columns[i]];
  const unsigned lanes = THREADS == 32 ? ~0u : ((1u << THREADS % 32) - 1) << (threadIdx.x % 32 / THREADS * THREADS);
  for (int step = THREADS / 2; step > 0; step /= 2) sum += __shfl_down_sync(lanes, sum, step, THREADS);
  if (lane == 0) y[row] = sum;
}

// @BE product arg[m]:int32 arg[nnz]:int32 arg[nnz]:float32 arg[k]:float32 ret[m-1]:float32 stream
void product(const BE::Tensor starts, const BE::Tensor columns, const BE::Tensor values, const BE::Tensor x, BE::Tensor y,
             int64_t stream) {
  const int n = static_cast<int>(y.numel());
  const int blocks = static_cast<int>((int64_t{n} * THREADS + BLOCK - 1) / BLOCK);
  csr_rows<<<blocks, BLOCK, 0, (cudaStream_t)stream>>>(starts.data_ptr<int32_t>(), columns.data_ptr<int32_t>(),
                                                       values.data_ptr<float>(), x.data_ptr<float>(),
                                                       y.data_ptr<float>(), n);
}
