// Event-driven products as brain simulations use them: dispatch macros and the helpers of cuda_common.h.
#include <cuda_runtime.h>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"
#include "cuda_common.h"

template <class Index, class Pointer>
__global__ void gather_kernel(const float* data, const Index* indices, const Pointer* indptr, const bool* spikes,
                              float* out, int64_t rows) {
  const int64_t first = int64_t(blockIdx.x) * BE_WARP_PER_ROW_WPB + threadIdx.x / 32;
  for (int64_t row = first; row < rows; row += int64_t(gridDim.x) * BE_WARP_PER_ROW_WPB) {
    float sum = ZERO_F32;
    for (Pointer k = indptr[row] + threadIdx.x % 32; k < indptr[row + 1]; k += 32) {
      if (IS_ACTIVE_BOOL(spikes[indices[k]])) sum += READ_F32(data[k]);
    }
    sum = warp_reduce_sum_f32(sum);
    if (threadIdx.x % 32 == 0) out[row] = WRITE_F32(sum);
  }
}

// A sparse matrix in CSR form times a vector of spikes; each row is a warp's.
// @BE gather
void gather(const BE::Tensor data, const BE::Tensor indices, const BE::Tensor indptr, const BE::Tensor spikes,
            BE::Tensor out, int64_t stream) {
  const int64_t rows = out.size(0);
  BE_CHECK(indptr.size(0) == rows + 1) << "indptr has " << indptr.size(0) << " entries for " << rows << " rows";
  BE_DISPATCH_SIGNED_INDEX_PAIR(indices.dtype(), indptr.dtype(), index_t, pointer_t, {
    gather_kernel<index_t, pointer_t><<<BE_WARP_PER_ROW_GRID(rows), BE_WARP_PER_ROW_BLOCK, 0, (cudaStream_t)stream>>>(
        data.data_ptr<float>(), indices.data_ptr<index_t>(), indptr.data_ptr<pointer_t>(), spikes.data_ptr<bool>(),
        out.data_ptr<float>(), rows);
  });
  BE_CHECK_KERNEL_LAUNCH();
}

__device__ void add_to(float* address, float value) { atomic_add_f32(address, value); }
__device__ void add_to(double* address, double value) { atomic_add_f64(address, value); }
__device__ void add_to(__half* address, __half value) { atomic_add_f16(address, __half2float(value)); }
__device__ void add_to(__nv_bfloat16* address, __nv_bfloat16 value) { atomic_add_bf16(address, __bfloat162float(value)); }

template <class T>
__global__ void scatter_kernel(const T* weights, const int32_t* indices, const float* spikes, T* out, int rows,
                               int row_size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * row_size && IS_ACTIVE_FLOAT(spikes[i / row_size])) add_to(out + indices[i], weights[i]);
}

// Each spike adds its row of weights to the targets that its row of indices names.
// @BE scatter
void scatter(const BE::Tensor weights, const BE::Tensor indices, const BE::Tensor spikes, BE::Tensor out,
             int64_t stream) {
  BE_CHECK_CSR_INDICES_INT32(indices);
  const int rows = int(weights.size(0)), row_size = int(weights.size(1));
  BE_CUDA_CHECK(cudaMemsetAsync(out.data_ptr(), 0, out.nbytes(), (cudaStream_t)stream));
  BE_DISPATCH_FLOATING_AND_HALF(weights.dtype(), weight_t, {
    scatter_kernel<weight_t><<<(rows * row_size + 127) / 128, 128, 0, (cudaStream_t)stream>>>(
        weights.data_ptr<weight_t>(), indices.data_ptr<int32_t>(), spikes.data_ptr<float>(), out.data_ptr<weight_t>(),
        rows, row_size);
  });
  BE_CHECK_KERNEL_LAUNCH();
}
