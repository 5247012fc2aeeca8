// found as: unwritten
#include "brainevent/common.h"

// @BE never_written arg ret
void never_written(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i)
    if (i % 3 != 1) y.data_ptr<float>()[i] = 1;
}
