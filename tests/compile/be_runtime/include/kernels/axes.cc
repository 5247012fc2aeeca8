#include "brainevent/common.h"

static const float* in(const BE::Tensor& x) { return x.data_ptr<float>(); }
static float sum(const BE::Tensor& x) {
  float sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += in(x)[i];
  return sum;
}

// @BE matvec arg[n k] arg[k] ret[n]
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.size(0); ++i) y.at<float>(i) = in(a)[i * x.size(0)] * sum(x);
}

// @BE cross arg[... 3] arg ret[... 3]
void cross(const BE::Tensor x, const BE::Tensor other, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = in(x)[i] + in(other)[0];
}

// @BE total arg[n] ret[]
void total(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = sum(x); }

// @BE pairs arg[n] ret[n/2 2]
void pairs(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = sum(x); }
// @BE bins arg[n] ret[attr.count ceil(n/attr.count)-n//n] attr.count
void bins(const BE::Tensor, BE::Tensor, int count) { BE_CHECK(count > 0); }
