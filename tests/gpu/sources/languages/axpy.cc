#include "brainevent/common.h"

// @BE axpy arg[... n]:float32 arg[... n]:float32 ret[... n]:float32 attr.less:int64=0
void axpy(const BE::Tensor x, const BE::Tensor y, BE::Tensor out, int64_t less) {
  for (int64_t i = 0; i < out.numel() - less; ++i)
    out.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i] + y.data_ptr<float>()[i];
}
