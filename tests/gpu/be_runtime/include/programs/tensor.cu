// Every accessor of a Tensor that a kernel received by value, against the host's answers.
#include "device.h"
#include "expect.h"

constexpr int kSlots = 64;

__host__ __device__ void describe(const BE::Tensor& tensor, int64_t* out) {
  int slot = 0;
  const auto put = [&](int64_t value) { out[slot++] = value; };
  put(reinterpret_cast<intptr_t>(tensor.data_ptr()));
  put(reinterpret_cast<intptr_t>(tensor.data()));
  put(reinterpret_cast<intptr_t>(tensor.data_ptr<const int16_t>()));
  put(tensor.ndim());
  for (int i = 0; i < tensor.ndim(); ++i) {
    put(tensor.shape(i));
    put(tensor.size(i - tensor.ndim()));
    put(tensor.stride(i));
    put(tensor.shape_ptr()[i]);
    put(tensor.strides_ptr()[i]);
  }
  put(static_cast<int64_t>(tensor.dtype()));
  put(static_cast<int64_t>(tensor.element_size()));
  put(tensor.numel());
  put(static_cast<int64_t>(tensor.nbytes()));
  put(tensor.numel_checked_int());
  put(tensor.is_contiguous());
  put(BE::dtype_name(tensor.dtype())[0]);
  put(static_cast<int64_t>(BE::dtype_size(BE::DType::Complex128)));
  const BE::Tensor copy = tensor;
  put(copy.numel());
  put(BE::Tensor().numel());
}

__global__ void describe_on_device(BE::Tensor tensor, int64_t* out) {
  describe(tensor, out);
}

// Builds a view in a kernel, as a kernel that works on a part of an array does.
__global__ void row_sums(const BE::Tensor matrix, float* sums) {
  const int64_t columns = matrix.shape(-1);
  const int row = threadIdx.x;
  float* const first = const_cast<float*>(matrix.data_ptr<float>()) + row * matrix.stride(0);
  const BE::Tensor view(first, matrix.dtype(), 1, &columns);
  for (int64_t i = 0; i < view.numel(); ++i) sums[row] += view.data_ptr<const float>()[i];
}

int main() {
  const int64_t dims[] = {2, 3, 1, 2, 1, 2, 1, 2};
  for (int ndim = 0; ndim <= BE::Tensor::kMaxDims; ++ndim) {
    const DeviceArray<int64_t> out(std::vector<int64_t>(kSlots, -1));
    const BE::Tensor tensor(out.data(), BE::DType::Int16, ndim, dims);
    describe_on_device<<<1, 1>>>(tensor, out.data());
    BE_CHECK_KERNEL_LAUNCH_SYNC();
    std::vector<int64_t> expected(kSlots, -1);
    describe(tensor, expected.data());
    EXPECT(out.fetch() == expected);
  }
  const DeviceArray<float> in({1, 2, 3, 4, 5, 6});
  const int64_t shape[] = {2, 3};
  const BE::Tensor matrix(in.data(), BE::DType::Float32, 2, shape);
  const DeviceArray<float> sums(std::vector<float>(2));
  row_sums<<<1, 2>>>(matrix, sums.data());
  BE_CHECK_KERNEL_LAUNCH();
  EXPECT(sums.fetch() == std::vector<float>({6, 15}));
}
