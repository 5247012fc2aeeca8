#include "brainevent/common.h"

// @BE integrate arg[n] arg[n] ret[n] attr.leak:float32=0.9
void integrate(const BE::Tensor v, const BE::Tensor current, BE::Tensor next, float leak) {
  for (int64_t i = 0; i < v.numel(); ++i)
    next.data_ptr<float>()[i] = leak * v.data_ptr<float>()[i] + current.data_ptr<float>()[i];
}
