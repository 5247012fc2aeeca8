// found as: unwritten
#include "brainevent/common.h"

// @BE uninitialised_local arg ret
void uninitialised_local(const BE::Tensor x, BE::Tensor y) {
  float last[64];
  for (int64_t i = 0; i < x.numel(); i += 2) last[i % 64] = x.data_ptr<float>()[i];
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = last[i % 64];
}
