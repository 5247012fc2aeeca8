// found as: stack-overflow
#include "brainevent/common.h"

static int deep(int n) {
  volatile char room[4096];
  room[n & 4095] = 1;
  return n <= 0 ? room[0] : deep(n - 1) + room[1];
}
// @BE stack_overflow arg ret
void stack_overflow(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(deep(1 << 28));
}
