#include <cuda_runtime.h>
#include "brainevent/common.h"
#include "brainevent/state.h"

__global__ void add_kernel(const float* x, const float* y, float* z, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

static void add(const BE::Tensor& a, const BE::Tensor& b, BE::Tensor& out, int64_t stream) {
  const int64_t n = out.numel();
  add_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
}

// @BE declared arg arg ret stream scratch[1048576]
void declared(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream, BE::Workspace memory) {
  BE_CHECK(memory.data() != nullptr);
  add(a, b, out, stream);
}

// @BE asked
void asked(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream, BE::Workspace memory) {
  BE_CHECK(memory.allocate(1 << 20) != nullptr);
  add(a, b, out, stream);
}

struct Plan {
  int calls = 0;
};

// @BE planned
void planned(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream, const BE::State<Plan>& plan) {
  BE_CHECK(plan->calls == 0);
  add(a, b, out, stream);
}
