#include "brainevent/common.h"
using BE::Tensor;
// @BE element arg ret attr.i:int64 attr.j:int64
void element(const Tensor x, Tensor y, int64_t i, int64_t j) { y.at<float>(0) = x.at<float>(i, j); }
// @BE corners arg ret
void corners(const Tensor x, Tensor y) {
  const int one = 1;
  const size_t last = 1;
  y.at<float>(0) = x.at<float>(0, 0, 0, 0, 0, 0, 0, 0);
  y.at<float>(1) = x.at<float>(one, last, 1u, true, 1, 1, 1L, 2);
}
// @BE one_index arg ret
void one_index(const Tensor x, Tensor y) { y.at<float>(0) = x.at<float>(0); }
// @BE wide arg ret
void wide(const Tensor x, Tensor y) {
  y.at<float>(0) =
      x.at<double>(0, 0);
}
// @BE pairs arg ret
void pairs(const Tensor x, Tensor y) { struct Pair { float x, y; }; y.at<float>(0) = x.at<Pair>(0, 0).x; }
// @BE pointer arg ret
void pointer(const Tensor x, Tensor y) {
  y.data_ptr<float>()[0] =
      x.data_ptr<BE::complex64_t>() != nullptr;
}
