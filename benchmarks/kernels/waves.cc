#include "brainevent/common.h"
#include "brainevent/parallel.h"

#include <cmath>

static void waves(const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = std::sin(x[i]) + std::cos(x[i]);
}

// @BE alone
void alone(const BE::Tensor x, BE::Tensor y) { waves(x.data_ptr<float>(), y.data_ptr<float>(), 0, x.numel()); }

// @BE together
void together(const BE::Tensor x, BE::Tensor y, int64_t grain) {
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  BE::parallel_for(x.numel(), grain, [=](int64_t begin, int64_t end) { waves(from, to, begin, end); });
}
