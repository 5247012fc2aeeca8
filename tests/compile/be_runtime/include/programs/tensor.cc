#include <limits.h>

#include <type_traits>

#include "brainevent/common.h"
#include "expect.h"

static_assert(std::is_trivially_copyable<BE::Tensor>::value, "copied as bytes, into kernels too");
static_assert(std::is_trivially_destructible<BE::Tensor>::value, "owns nothing");
static_assert(std::is_nothrow_default_constructible<BE::Tensor>::value, "never throws");
static_assert(std::is_nothrow_constructible<BE::Tensor, void*, BE::DType, int, const int64_t*>::value, "never throws");
static_assert(BE::Tensor::kMaxDims == 8, "documented");

static void empty_arrays() {
  const int64_t dims[] = {3, 0, 5};
  const BE::Tensor tensor(nullptr, BE::DType::Float64, 3, dims);
  EXPECT(tensor.shape_ptr() != dims);  // the view keeps nothing of its maker
  EXPECT(tensor.numel() == 0 && tensor.nbytes() == 0 && tensor.numel_checked_int() == 0 && tensor.is_contiguous());
  EXPECT(tensor.size(-3) == 3 && tensor.shape(1) == 0 && tensor.stride(2) == 1 && tensor.stride(1) == 5 && tensor.stride(0) == 0);
  const BE::Tensor none;
  EXPECT(none.data_ptr() == nullptr && none.ndim() == 0 && none.numel() == 0 && none.nbytes() == 0);
  EXPECT(none.dtype() == BE::DType::Invalid);
}

static void elements_that_share_bytes() {
  uint8_t data[7] = {};
  const int64_t dims[] = {13};
  for (int64_t count = 0; count <= 13; ++count) {
    EXPECT(BE::Tensor(data, BE::DType::UInt4, 1, &count).nbytes() == static_cast<size_t>(count + 1) / 2);
    EXPECT(BE::Tensor(data, BE::DType::Int2, 1, &count).nbytes() == static_cast<size_t>(count + 3) / 4);
  }
  const BE::Tensor tensor(data, BE::DType::Int4, 1, dims);
  EXPECT(tensor.numel() == 13 && tensor.nbytes() == 7 && tensor.stride(0) == 1 && tensor.data_ptr<uint8_t>() == data);
  EXPECT_THROWS(tensor.element_size(), "element_size(): elements of int4 are smaller than a byte; use nbytes()");
  EXPECT(BE::Tensor().element_size() == 0);
}

static void errors() {
  const int64_t dims[] = {INT_MAX, 2};
  const BE::Tensor vector(nullptr, BE::DType::Int8, 1, dims);
  const BE::Tensor matrix(nullptr, BE::DType::Int8, 2, dims);
  EXPECT(vector.numel_checked_int() == INT_MAX);
  EXPECT_THROWS(matrix.numel_checked_int(), "4294967294 elements are more than an int can count");
  EXPECT_THROWS(matrix.shape(2), "dimension 2 of a tensor with 2 dimensions");
  EXPECT_THROWS(matrix.size(-3), "dimension -3 of a tensor with 2 dimensions");
  EXPECT_THROWS(vector.stride(1), "dimension 1 of a tensor with 1 dimension");
  EXPECT_THROWS(BE::Tensor().shape(0), "dimension 0 of a tensor with 0 dimensions");
}

int main() {
  empty_arrays();
  elements_that_share_bytes();
  errors();
}
