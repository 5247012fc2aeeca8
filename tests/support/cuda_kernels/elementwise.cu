// Every dtype, and a Tensor's accessors in device code.
#include <cuda_runtime.h>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"

template <class T>
__global__ void twice_kernel(const BE::Tensor x, BE::Tensor out) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < x.numel()) out.data_ptr<T>()[i] = T(x.data_ptr<T>()[i] + x.data_ptr<T>()[i]);
}

// @BE twice
void twice(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  BE_CHECK(x.dtype() == out.dtype()) << "x is " << x.dtype() << ", out is " << out.dtype();
  BE_DISPATCH_ALL(x.dtype(), scalar_t, {
    twice_kernel<scalar_t><<<unsigned((x.numel() + 127) / 128), 128, 0, (cudaStream_t)stream>>>(x, out);
  });
  BE_CHECK_KERNEL_LAUNCH();
}

// What the accessors say, as int64: 8 facts, then 8 extents, then 8 strides; -1 where there is no such dimension.
__global__ void describe_kernel(const BE::Tensor x, BE::Tensor out) {
  int64_t* const facts = out.data_ptr<int64_t>();
  facts[0] = x.ndim();
  facts[1] = x.numel();
  facts[2] = int64_t(x.element_size());
  facts[3] = int64_t(x.nbytes());
  facts[4] = int64_t(x.dtype());
  facts[5] = x.is_contiguous();
  facts[6] = x.numel_checked_int();
  facts[7] = x.data() == x.data_ptr() && x.data_ptr<char>() == x.data();
  for (int i = 0; i < 8; ++i) {
    facts[8 + i] = i < x.ndim() ? x.shape(i) : -1;
    facts[16 + i] = i < x.ndim() ? x.stride(i - x.ndim()) : -1;
    if (i < x.ndim() && x.size(i) != x.shape_ptr()[i]) facts[0] = -2;
    if (i < x.ndim() && x.stride(i) != x.strides_ptr()[i]) facts[0] = -3;
  }
}

// @BE describe
void describe(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  describe_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(x, out);
}

__global__ void divmod_kernel(const int32_t* a, const int32_t* b, int32_t* quotient, int32_t* rest, bool* exact, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  quotient[i] = a[i] / b[i];
  rest[i] = a[i] % b[i];
  exact[i] = rest[i] == 0;
}

// Several outputs, of two dtypes.
// @BE divmod
void divmod(const BE::Tensor a, const BE::Tensor b, BE::Tensor quotient, BE::Tensor rest, BE::Tensor exact,
            int64_t stream) {
  const int n = a.numel_checked_int();
  divmod_kernel<<<(n + 63) / 64, 64, 0, (cudaStream_t)stream>>>(
      a.data_ptr<int32_t>(), b.data_ptr<int32_t>(), quotient.data_ptr<int32_t>(), rest.data_ptr<int32_t>(),
      exact.data_ptr<bool>(), n);
}
