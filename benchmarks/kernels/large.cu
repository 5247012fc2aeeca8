// A file as projects of event-driven simulation have them: twelve entry points on templates over element types.
//
// Matrices are row-major. A spike is a bool, or a number that counts as one when it is above zero.
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

#include "brainevent/common.h"

namespace {

constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr int kBins = 256;
constexpr int kTile = 16;

unsigned blocks_for(int64_t items) {
  return unsigned((items + kBlock - 1) / kBlock);
}

cudaStream_t as_stream(int64_t stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

__device__ bool fires(bool spike) {
  return spike;
}

template <class T>
__device__ bool fires(T spike) {
  return spike > T(0);
}

// ---- Reductions ----------------------------------------------------------------------------------------------------

struct Add {
  template <class T>
  __device__ static T identity() {
    return T(0);
  }
  template <class T>
  __device__ static T combine(T a, T b) {
    return a + b;
  }
};

struct Larger {
  template <class T>
  __device__ static T identity() {
    return T(-INFINITY);
  }
  template <class T>
  __device__ static T combine(T a, T b) {
    return a < b ? b : a;
  }
};

template <class Op, class T>
__device__ T reduce_warp(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// Every thread of the block takes part and receives the result.
template <class Op, class T>
__device__ T reduce_block(T value) {
  __shared__ T partial[kBlock / kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = reduce_warp<Op>(value);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < kBlock / kWarp ? partial[lane] : Op::template identity<T>();
  return reduce_warp<Op>(value);
}

template <class Op, class T>
__global__ void reduce_rows_kernel(const T* x, T* out, int64_t columns) {
  const T* row = x + blockIdx.x * columns;
  T value = Op::template identity<T>();
  for (int64_t j = threadIdx.x; j < columns; j += kBlock) value = Op::combine(value, row[j]);
  value = reduce_block<Op>(value);
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

template <class Op>
void reduce_rows(const BE::Tensor& x, BE::Tensor& out, int64_t stream) {
  BE_CHECK(x.ndim() == 2) << "a matrix is expected, not" << x.ndim() << "dimensions";
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    reduce_rows_kernel<Op, scalar_t><<<unsigned(x.size(0)), kBlock, 0, as_stream(stream)>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.size(1));
  });
  BE_CHECK_KERNEL_LAUNCH();
}

template <class T>
__global__ void softmax_kernel(const T* x, T* out, int64_t columns) {
  const T* row = x + blockIdx.x * columns;
  T* result = out + blockIdx.x * columns;
  T largest = Larger::identity<T>();
  for (int64_t j = threadIdx.x; j < columns; j += kBlock) largest = Larger::combine(largest, row[j]);
  largest = reduce_block<Larger>(largest);
  T total = T(0);
  for (int64_t j = threadIdx.x; j < columns; j += kBlock) {
    const T weight = exp(row[j] - largest);
    result[j] = weight;
    total += weight;
  }
  total = reduce_block<Add>(total);
  for (int64_t j = threadIdx.x; j < columns; j += kBlock) result[j] /= total;
}

// ---- Dense matrices and spikes -------------------------------------------------------------------------------------

// A warp sums one row over the columns whose spike is set.
template <class T, class Spike>
__global__ void dense_gather_kernel(const T* weights, const Spike* spikes, T* out, int64_t rows, int64_t columns) {
  const int64_t row = int64_t(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  T sum = T(0);
  for (int64_t j = threadIdx.x % kWarp; j < columns; j += kWarp) {
    if (fires(spikes[j])) sum += weights[row * columns + j];
  }
  sum = reduce_warp<Add>(sum);
  if (threadIdx.x % kWarp == 0) out[row] = sum;
}

// A thread sums one column over the rows whose spike is set; the block looks at a chunk of spikes together.
template <class T, class Spike>
__global__ void dense_scatter_kernel(const T* weights, const Spike* spikes, T* out, int64_t rows, int64_t columns) {
  __shared__ bool active[kBlock];
  const int64_t column = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  T sum = T(0);
  for (int64_t first = 0; first < rows; first += kBlock) {
    active[threadIdx.x] = first + threadIdx.x < rows && fires(spikes[first + threadIdx.x]);
    __syncthreads();
    if (column < columns) {
      for (int i = 0; i < kBlock; ++i) {
        if (active[i]) sum += weights[(first + i) * columns + column];
      }
    }
    __syncthreads();
  }
  if (column < columns) out[column] = sum;
}

// ---- Sparse matrices and spikes ------------------------------------------------------------------------------------

// One weight for all connections, or one for each.
template <class T, bool kShared>
struct Weights {
  const T* values;
  __device__ T operator[](int64_t k) const { return values[kShared ? 0 : k]; }
};

template <class T, class Index, class Spike, bool kShared>
__global__ void csr_gather_kernel(Weights<T, kShared> weights, const Index* indices, const Index* starts,
                                  const Spike* spikes, T* out, int64_t rows) {
  const int64_t row = int64_t(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  T sum = T(0);
  for (int64_t k = starts[row] + threadIdx.x % kWarp; k < starts[row + 1]; k += kWarp) {
    if (fires(spikes[indices[k]])) sum += weights[k];
  }
  sum = reduce_warp<Add>(sum);
  if (threadIdx.x % kWarp == 0) out[row] = sum;
}

template <class T, class Index, class Spike, bool kShared>
__global__ void csr_scatter_kernel(Weights<T, kShared> weights, const Index* indices, const Index* starts,
                                   const Spike* spikes, T* out, int64_t rows) {
  const int64_t row = int64_t(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (row >= rows || !fires(spikes[row])) return;
  for (int64_t k = starts[row] + threadIdx.x % kWarp; k < starts[row + 1]; k += kWarp) {
    atomicAdd(out + indices[k], weights[k]);
  }
}

struct Csr {
  const BE::Tensor &weights, &indices, &starts;
  void check() const {
    BE_CHECK(indices.dtype() == starts.dtype()) << "indices and row starts differ in type";
    BE_CHECK(weights.numel() == 1 || weights.numel() == indices.numel())
        << weights.numel() << "weights for" << indices.numel() << "connections";
  }
};

template <bool kShared>
void csr_gather_with(const Csr& matrix, const BE::Tensor& spikes, BE::Tensor& out, int64_t stream) {
  const int64_t rows = out.numel();
  BE_DISPATCH_FLOATING(out.dtype(), scalar_t, {
    BE_DISPATCH_SIGNED_INDEX(matrix.indices.dtype(), index_t, {
      const auto launch = [&](auto spike) {
        using spike_t = decltype(spike);
        csr_gather_kernel<scalar_t, index_t, spike_t, kShared>
            <<<blocks_for(rows * kWarp), kBlock, 0, as_stream(stream)>>>(
                {matrix.weights.data_ptr<scalar_t>()}, matrix.indices.data_ptr<index_t>(),
                matrix.starts.data_ptr<index_t>(), spikes.data_ptr<spike_t>(), out.data_ptr<scalar_t>(), rows);
      };
      if (spikes.dtype() == BE::DType::Bool) {
        launch(bool());
      } else {
        launch(scalar_t());
      }
    });
  });
  BE_CHECK_KERNEL_LAUNCH();
}

template <bool kShared>
void csr_scatter_with(const Csr& matrix, const BE::Tensor& spikes, BE::Tensor& out, int64_t stream) {
  const int64_t rows = spikes.numel();
  BE_CUDA_CHECK(cudaMemsetAsync(out.data_ptr(), 0, out.nbytes(), as_stream(stream)));
  BE_DISPATCH_FLOATING(out.dtype(), scalar_t, {
    BE_DISPATCH_SIGNED_INDEX(matrix.indices.dtype(), index_t, {
      const auto launch = [&](auto spike) {
        using spike_t = decltype(spike);
        csr_scatter_kernel<scalar_t, index_t, spike_t, kShared>
            <<<blocks_for(rows * kWarp), kBlock, 0, as_stream(stream)>>>(
                {matrix.weights.data_ptr<scalar_t>()}, matrix.indices.data_ptr<index_t>(),
                matrix.starts.data_ptr<index_t>(), spikes.data_ptr<spike_t>(), out.data_ptr<scalar_t>(), rows);
      };
      if (spikes.dtype() == BE::DType::Bool) {
        launch(bool());
      } else {
        launch(scalar_t());
      }
    });
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// ---- Activations ---------------------------------------------------------------------------------------------------

struct Rectified {
  template <class T>
  __device__ static T value(T x) {
    return x > T(0) ? x : T(0);
  }
  template <class T>
  __device__ static T slope(T x) {
    return x > T(0) ? T(1) : T(0);
  }
};

struct Sigmoid {
  template <class T>
  __device__ static T value(T x) {
    return T(1) / (T(1) + exp(-x));
  }
  template <class T>
  __device__ static T slope(T x) {
    const T y = value(x);
    return y * (T(1) - y);
  }
};

struct Swish {
  template <class T>
  __device__ static T value(T x) {
    return x * Sigmoid::value(x);
  }
  template <class T>
  __device__ static T slope(T x) {
    const T y = Sigmoid::value(x);
    return y * (T(1) + x * (T(1) - y));
  }
};

struct Gaussian {
  template <class T>
  __device__ static T value(T x) {
    return T(0.5) * x * (T(1) + erf(x * T(0.7071067811865476)));
  }
  template <class T>
  __device__ static T slope(T x) {
    const T density = T(0.3989422804014327) * exp(T(-0.5) * x * x);
    return T(0.5) * (T(1) + erf(x * T(0.7071067811865476))) + x * density;
  }
};

template <class Kind, class T>
__global__ void activate_kernel(const T* x, T* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (i < n) out[i] = Kind::value(x[i]);
}

template <class Kind, class T>
__global__ void activate_backward_kernel(const T* x, const T* gradient, T* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (i < n) out[i] = gradient[i] * Kind::slope(x[i]);
}

// Calls a function with the kind of activation that a number stands for.
template <class Function>
void with_activation(int32_t kind, Function function) {
  switch (kind) {
    case 0: return function(Rectified());
    case 1: return function(Sigmoid());
    case 2: return function(Swish());
    case 3: return function(Gaussian());
    default: BE_CHECK(false) << "there is no activation" << kind;
  }
}

// ---- Grids and counts ----------------------------------------------------------------------------------------------

// The mean over a square around each cell, cut off at the edges; a tile and its margin are read once.
template <class T, int kRadius>
__global__ void smooth_kernel(const T* x, T* out, int height, int width) {
  constexpr int kSide = kTile + 2 * kRadius;
  __shared__ T tile[kSide][kSide];
  const int left = int(blockIdx.x) * kTile - kRadius, top = int(blockIdx.y) * kTile - kRadius;
  for (int cell = threadIdx.y * kTile + threadIdx.x; cell < kSide * kSide; cell += kTile * kTile) {
    const int row = top + cell / kSide, column = left + cell % kSide;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    tile[cell / kSide][cell % kSide] = inside ? x[int64_t(row) * width + column] : T(0);
  }
  __syncthreads();
  const int row = top + kRadius + int(threadIdx.y), column = left + kRadius + int(threadIdx.x);
  if (row >= height || column >= width) return;
  T sum = T(0);
#pragma unroll
  for (int i = 0; i <= 2 * kRadius; ++i) {
#pragma unroll
    for (int j = 0; j <= 2 * kRadius; ++j) sum += tile[threadIdx.y + i][threadIdx.x + j];
  }
  const int rows = min(row + kRadius, height - 1) - max(row - kRadius, 0) + 1;
  const int columns = min(column + kRadius, width - 1) - max(column - kRadius, 0) + 1;
  out[int64_t(row) * width + column] = sum / T(rows * columns);
}

template <class T, int kRadius>
void smooth_with(const BE::Tensor& x, BE::Tensor& out, int64_t stream) {
  const int height = int(x.size(0)), width = int(x.size(1));
  const dim3 grid((width + kTile - 1) / kTile, (height + kTile - 1) / kTile), block(kTile, kTile);
  smooth_kernel<T, kRadius><<<grid, block, 0, as_stream(stream)>>>(x.data_ptr<T>(), out.data_ptr<T>(), height, width);
}

// Each block counts in shared memory, and adds what it has counted to the result.
template <class T>
__global__ void histogram_kernel(const T* x, int32_t* counts, int64_t n, T low, T high) {
  __shared__ int32_t local[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) local[bin] = 0;
  __syncthreads();
  for (int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x; i < n; i += int64_t(gridDim.x) * kBlock) {
    if (x[i] >= low && x[i] < high) atomicAdd(local + min(int((x[i] - low) / (high - low) * kBins), kBins - 1), 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) {
    if (local[bin] != 0) atomicAdd(counts + bin, local[bin]);
  }
}

// ---- Neurons -------------------------------------------------------------------------------------------------------

// One step of leaky integrate-and-fire neurons: decay, input, threshold, reset.
template <class T>
__global__ void lif_kernel(const T* potential, const T* input, T* next, bool* spikes, int64_t n, T decay, T threshold) {
  const int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= n) return;
  const T value = decay * potential[i] + input[i];
  const bool spike = value >= threshold;
  spikes[i] = spike;
  next[i] = spike ? T(0) : value;
}

}  // namespace

// ---- Entry points --------------------------------------------------------------------------------------------------

// @BE row_sum arg ret stream
void row_sum(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  reduce_rows<Add>(x, out, stream);
}

// @BE row_max arg ret stream
void row_max(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  reduce_rows<Larger>(x, out, stream);
}

// @BE softmax arg ret stream
void softmax(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_CHECK(x.ndim() == 2) << "a matrix is expected, not" << x.ndim() << "dimensions";
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    softmax_kernel<scalar_t><<<unsigned(x.size(0)), kBlock, 0, as_stream(stream)>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.size(1));
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE dense_gather arg arg ret stream
void dense_gather(const BE::Tensor weights, const BE::Tensor spikes, BE::Tensor out, int64_t stream) {
  const int64_t rows = weights.size(0), columns = weights.size(1);
  BE_CHECK(spikes.numel() == columns) << spikes.numel() << "spikes for" << columns << "columns";
  BE_DISPATCH_FLOATING(weights.dtype(), scalar_t, {
    const auto launch = [&](auto spike) {
      using spike_t = decltype(spike);
      dense_gather_kernel<scalar_t, spike_t><<<blocks_for(rows * kWarp), kBlock, 0, as_stream(stream)>>>(
          weights.data_ptr<scalar_t>(), spikes.data_ptr<spike_t>(), out.data_ptr<scalar_t>(), rows, columns);
    };
    if (spikes.dtype() == BE::DType::Bool) {
      launch(bool());
    } else {
      launch(scalar_t());
    }
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE dense_scatter arg arg ret stream
void dense_scatter(const BE::Tensor weights, const BE::Tensor spikes, BE::Tensor out, int64_t stream) {
  const int64_t rows = weights.size(0), columns = weights.size(1);
  BE_CHECK(spikes.numel() == rows) << spikes.numel() << "spikes for" << rows << "rows";
  BE_DISPATCH_FLOATING(weights.dtype(), scalar_t, {
    const auto launch = [&](auto spike) {
      using spike_t = decltype(spike);
      dense_scatter_kernel<scalar_t, spike_t><<<blocks_for(columns), kBlock, 0, as_stream(stream)>>>(
          weights.data_ptr<scalar_t>(), spikes.data_ptr<spike_t>(), out.data_ptr<scalar_t>(), rows, columns);
    };
    if (spikes.dtype() == BE::DType::Bool) {
      launch(bool());
    } else {
      launch(scalar_t());
    }
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE csr_gather arg arg arg arg ret stream
void csr_gather(const BE::Tensor weights, const BE::Tensor indices, const BE::Tensor starts, const BE::Tensor spikes,
                BE::Tensor out, int64_t stream) {
  const Csr matrix{weights, indices, starts};
  matrix.check();
  if (weights.numel() == 1) return csr_gather_with<true>(matrix, spikes, out, stream);
  csr_gather_with<false>(matrix, spikes, out, stream);
}

// @BE csr_scatter arg arg arg arg ret stream
void csr_scatter(const BE::Tensor weights, const BE::Tensor indices, const BE::Tensor starts, const BE::Tensor spikes,
                 BE::Tensor out, int64_t stream) {
  const Csr matrix{weights, indices, starts};
  matrix.check();
  if (weights.numel() == 1) return csr_scatter_with<true>(matrix, spikes, out, stream);
  csr_scatter_with<false>(matrix, spikes, out, stream);
}

// @BE activate arg ret attr.kind:int32 stream
void activate(const BE::Tensor x, BE::Tensor out, int32_t kind, int64_t stream) {
  const int64_t n = x.numel();
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    with_activation(kind, [&](auto chosen) {
      activate_kernel<decltype(chosen), scalar_t>
          <<<blocks_for(n), kBlock, 0, as_stream(stream)>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    });
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE activate_backward arg arg ret attr.kind:int32 stream
void activate_backward(const BE::Tensor x, const BE::Tensor gradient, BE::Tensor out, int32_t kind, int64_t stream) {
  const int64_t n = x.numel();
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    with_activation(kind, [&](auto chosen) {
      activate_backward_kernel<decltype(chosen), scalar_t><<<blocks_for(n), kBlock, 0, as_stream(stream)>>>(
          x.data_ptr<scalar_t>(), gradient.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    });
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE smooth arg ret attr.radius:int32 stream
void smooth(const BE::Tensor x, BE::Tensor out, int32_t radius, int64_t stream) {
  BE_CHECK(radius >= 1 && radius <= 3) << "the radius is 1 to 3, not" << radius;
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    if (radius == 1) smooth_with<scalar_t, 1>(x, out, stream);
    if (radius == 2) smooth_with<scalar_t, 2>(x, out, stream);
    if (radius == 3) smooth_with<scalar_t, 3>(x, out, stream);
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE histogram arg ret attr.low:float32 attr.high:float32 stream
void histogram(const BE::Tensor x, BE::Tensor counts, float low, float high, int64_t stream) {
  BE_CHECK(counts.numel() == kBins && counts.dtype() == BE::DType::Int32) << "counts are" << kBins << "int32";
  BE_CUDA_CHECK(cudaMemsetAsync(counts.data_ptr(), 0, counts.nbytes(), as_stream(stream)));
  const unsigned wanted = blocks_for(x.numel()), blocks = wanted < 1024 ? wanted : 1024;
  BE_DISPATCH_FLOATING(x.dtype(), scalar_t, {
    histogram_kernel<scalar_t><<<blocks, kBlock, 0, as_stream(stream)>>>(
        x.data_ptr<scalar_t>(), counts.data_ptr<int32_t>(), x.numel(), scalar_t(low), scalar_t(high));
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE lif_step arg arg ret ret attr.decay:float32 attr.threshold:float32 stream
void lif_step(const BE::Tensor potential, const BE::Tensor input, BE::Tensor next, BE::Tensor spikes, float decay,
              float threshold, int64_t stream) {
  const int64_t n = potential.numel();
  BE_DISPATCH_FLOATING(potential.dtype(), scalar_t, {
    lif_kernel<scalar_t><<<blocks_for(n), kBlock, 0, as_stream(stream)>>>(
        potential.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), next.data_ptr<scalar_t>(), spikes.data_ptr<bool>(),
        n, scalar_t(decay), scalar_t(threshold));
  });
  BE_CHECK_KERNEL_LAUNCH();
}
