// Attributes of every kind, optional arrays and any number of them.
#include <cuda_runtime.h>

#include <optional>
#include <string_view>

#include "brainevent/common.h"

enum class Mode { sum, mean };
struct Affine {
  float scale = 1.0f;
  float offset;
};

__global__ void add(const float* x, float* y, int64_t n, float scale) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] += scale * x[i];
}

/// Sums any number of arrays with their weights, and applies an affine map; each array must have the result's shape.
// @BE combine
void combine(const BE::Tensors xs, std::optional<BE::Tensor> last, BE::Tensor y, BE::Span<const double> weights,
             Affine map, BE::DType type, cudaStream_t stream, std::string_view name = "combine", Mode mode = Mode::sum) {
  BE_CHECK(weights.size() == xs.size()) << name.size() << " letters: " << weights.size() << " weights";
  BE_CHECK(type == y.dtype()) << "the result is of " << y.dtype();
  const int64_t n = y.numel();
  const int blocks = static_cast<int>((n + 255) / 256);
  const float count = mode == Mode::mean ? static_cast<float>(xs.size()) : 1.0f;
  BE_CUDA_CHECK(cudaMemsetAsync(y.data_ptr(), 0, y.nbytes(), stream));
  const auto add_to = [&](const BE::Tensor& x, float scale) {
    add<<<blocks, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, scale);
  };
  for (size_t i = 0; i < xs.size(); ++i) add_to(xs[i], static_cast<float>(weights[i]) * map.scale / count);
  if (last) add_to(*last, map.offset);
}

/// Copies each array; the last result counts them.
// @BE copies
void copies(const BE::Tensors xs, BE::Tensors ys, BE::Tensor count, cudaStream_t stream) {
  for (size_t i = 0; i < xs.size(); ++i)
    BE_CUDA_CHECK(cudaMemcpyAsync(ys[i].data_ptr(), xs[i].data_ptr(), xs[i].nbytes(), cudaMemcpyDeviceToDevice, stream));
  BE_CUDA_CHECK(cudaMemsetAsync(count.data_ptr(), static_cast<int>(xs.size()), 1, stream));
}
