// Everything that can go wrong in a launcher, and one that works.
#include <cuda_runtime.h>

#include <stdexcept>

#include "brainevent/common.h"

__global__ void scale_kernel(const float* x, float* out, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * factor;
}

static void launch(const BE::Tensor& x, BE::Tensor& out, float factor, int threads, size_t shared, int64_t stream) {
  scale_kernel<<<1, threads, shared, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<float>(),
                                                            x.numel_checked_int(), factor);
}

// @BE good
void good(const BE::Tensor x, BE::Tensor out, float factor, int64_t stream) {
  launch(x, out, factor, 64, 0, stream);
  BE_CHECK_KERNEL_LAUNCH();
}

// @BE waits
void waits(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  launch(x, out, 3.0f, 64, 0, stream);
  BE_CHECK_KERNEL_LAUNCH_SYNC();
}

// @BE checked_launch
void checked_launch(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  launch(x, out, 2.0f, 4096, 0, stream);
  BE_CHECK_KERNEL_LAUNCH();  // the line of a checked launch
}

// @BE unchecked_launch
void unchecked_launch(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  launch(x, out, 2.0f, 4096, 0, stream);
}

// @BE too_much_shared
void too_much_shared(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  launch(x, out, 2.0f, 64, size_t{1} << 30, stream);
}

// @BE cuda_call
void cuda_call(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_CUDA_CHECK(cudaSetDevice(1 << 20));
}

// @BE condition
void condition(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_CHECK(x.numel() == 7) << "x has " << x.numel() << " elements of " << x.dtype();
}

// @BE standard_exception
void standard_exception(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  throw std::runtime_error("a standard exception");
}

// @BE other_exception
void other_exception(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  throw 42;
}
