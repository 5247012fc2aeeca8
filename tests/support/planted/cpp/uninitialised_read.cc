// found as: unwritten
#include "brainevent/common.h"

// @BE uninitialised_read arg ret
void uninitialised_read(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] += x.data_ptr<float>()[i];
}
