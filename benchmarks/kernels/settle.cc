#include "brainevent/common.h"

// Each potential decays for some steps, by dv/dt = -v^3.
// @BE settle arg[b n] ret[b n] attr.steps:int64 parallel[b]
void settle(const BE::Tensor x, BE::Tensor y, int64_t steps) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = x.data_ptr<float>()[i];
    for (int64_t s = 0; s < steps; ++s) v -= 0.001f * v * v * v;
    y.data_ptr<float>()[i] = v;
  }
}

// @BE settle_back arg[b n] arg[b n] ret[b n] attr.steps:int64 parallel[b]
void settle_back(const BE::Tensor x, const BE::Tensor g, BE::Tensor dx, int64_t steps) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = x.data_ptr<float>()[i], slope = g.data_ptr<float>()[i];
    for (int64_t s = 0; s < steps; ++s) {
      slope *= 1.0f - 0.003f * v * v;
      v -= 0.001f * v * v * v;
    }
    dx.data_ptr<float>()[i] = slope;
  }
}
