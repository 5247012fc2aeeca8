// Every dtype, and several results.
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
