// found as: guards
#include "brainevent/common.h"

// @BE write_outside arg ret
void write_outside(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i <= x.numel(); ++i) y.data_ptr<float>()[i] = 1;
}
