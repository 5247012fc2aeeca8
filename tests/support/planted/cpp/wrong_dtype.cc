// found as: error
#include "brainevent/common.h"

// @BE wrong_dtype arg ret
void wrong_dtype(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel() / 2; ++i) y.data_ptr<double>()[i] = 1;
}
