// found as: race
#include "brainevent/common.h"
#include "brainevent/parallel.h"

// @BE thread_race arg ret
void thread_race(const BE::Tensor x, BE::Tensor y) {
  volatile float* sum = y.data_ptr<float>();
  for (int64_t i = 0; i < y.numel(); ++i) sum[i] = 0;
  BE::parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum[0] = sum[0] + x.data_ptr<float>()[i];
  });
}
