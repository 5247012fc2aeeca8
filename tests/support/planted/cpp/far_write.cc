// found as: crash
#include "brainevent/common.h"

// @BE far_write arg ret
void far_write(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i];
  y.data_ptr<float>()[y.numel() + 4096] = 1;
}
