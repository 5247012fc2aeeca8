#include "brainevent/common.h"

// @BE vector_add arg arg ret
void vector_add(const BE::Tensor a, const BE::Tensor b, BE::Tensor out) {
  const float* x = a.data_ptr<float>();
  const float* y = b.data_ptr<float>();
  float* z = out.data_ptr<float>();
  const int64_t n = out.numel();
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
