// found as: values
#include "brainevent/common.h"

// @BE not_a_number arg ret
void not_a_number(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] / x.data_ptr<float>()[i];
}
