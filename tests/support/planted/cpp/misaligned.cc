// found as: misaligned
#include "brainevent/common.h"

// @BE misaligned arg ret
void misaligned(const BE::Tensor x, BE::Tensor y) {
  const char* bytes = x.data_ptr<char>();
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = i + 2 < x.numel() ? static_cast<float>(*reinterpret_cast<const double*>(bytes + 4)) : 0;
}
