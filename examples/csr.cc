// The product of a CSR matrix and a vector, in SUMS sums side by side: one sum waits for each of its additions.
#include "brainevent/common.h"

#ifndef SUMS
#define SUMS 1
#endif

// @BE product arg[m]:int32 arg[nnz]:int32 arg[nnz]:float32 arg[k]:float32 ret[m-1]:float32
void product(const BE::Tensor starts, const BE::Tensor columns, const BE::Tensor values, const BE::Tensor x, BE::Tensor y) {
  const int32_t *start = starts.data_ptr<int32_t>(), *column = columns.data_ptr<int32_t>();
  const float *value = values.data_ptr<float>(), *at = x.data_ptr<float>();
  for (int64_t row = 0; row < y.numel(); ++row) {
    float sums[SUMS] = {};
    int32_t i = start[row];
    for (; i + SUMS <= start[row + 1]; i += SUMS)
      for (int s = 0; s < SUMS; ++s) sums[s] += value[i + s] * at[column[i + s]];
    for (; i < start[row + 1]; ++i) sums[0] += value[i] * at[column[i]];
    for (int s = 1; s < SUMS; ++s) sums[0] += sums[s];
    y.data_ptr<float>()[row] = sums[0];
  }
}
