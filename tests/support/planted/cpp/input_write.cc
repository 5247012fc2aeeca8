// found as: inputs
#include "brainevent/common.h"

// @BE input_write arg ret
void input_write(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 1;
  const_cast<float*>(x.data_ptr<float>())[2] = 9;
}
