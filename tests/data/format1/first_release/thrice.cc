#include "brainevent/common.h"
// @BE thrice arg[n] ret[n]:like(0) attr.plus:float32=1.0
void thrice(const BE::Tensor x, BE::Tensor y, float plus) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 3 * x.data_ptr<float>()[i] + plus;
}
