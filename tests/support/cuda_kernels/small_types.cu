// Floats of 8 bits, and elements that share bytes, in device code.
#include <cuda_runtime.h>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"

static unsigned blocks(int64_t threads) { return unsigned((threads + 127) / 128); }

__global__ void copy_bytes(const BE::Tensor x, BE::Tensor out) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < int64_t(x.nbytes())) out.data_ptr<uint8_t>()[i] = x.data_ptr<uint8_t>()[i];
}

// @BE copy
void copy(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  copy_bytes<<<blocks(int64_t(x.nbytes())), 128, 0, (cudaStream_t)stream>>>(x, out);
}

template <class To, class From>
__global__ void convert_kernel(const From* x, To* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}

// @BE to_float
void to_float(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_DISPATCH_FLOAT8(x.dtype(), T, {
    convert_kernel<<<blocks(x.numel()), 128, 0, (cudaStream_t)stream>>>(x.data_ptr<T>(), out.data_ptr<float>(), x.numel());
  });
}

// @BE from_float
void from_float(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_DISPATCH_FLOAT8(out.dtype(), T, {
    convert_kernel<<<blocks(x.numel()), 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<T>(), x.numel());
  });
}

// A thread for each byte of the result.
template <class T>
__global__ void reverse_kernel(const T* x, T* out, int64_t n) {
  const int64_t first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * T::kCount;
  for (int64_t i = first; i < n && i < first + T::kCount; ++i)
    BE::store_packed(out, i, BE::load_packed(x, n - 1 - i));
}

// @BE reverse
void reverse(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_DISPATCH_PACKED(x.dtype(), T, {
    reverse_kernel<<<blocks(int64_t(x.nbytes())), 128, 0, (cudaStream_t)stream>>>(
        x.data_ptr<T>(), out.data_ptr<T>(), x.numel());
  });
}
