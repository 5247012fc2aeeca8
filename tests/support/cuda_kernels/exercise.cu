// Calls the launchers of the source before it without JAX, on allocations of exactly the arrays' sizes.
#include <cstdio>
#include <vector>

namespace {

class DeviceArray {
 public:
  template <class T>
  DeviceArray(BE::DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    BE_CUDA_CHECK(cudaMalloc(&data_, values.size() * sizeof(T)));
    BE_CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    tensor = BE::Tensor(data_, dtype, static_cast<int>(shape.size()), shape.data());
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  double sum() const {
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    BE_CUDA_CHECK(cudaMemcpy(values.data(), data_, tensor.nbytes(), cudaMemcpyDeviceToHost));
    double total = 0.0;
    for (float value : values) total += value;
    return total;
  }

  BE::Tensor tensor;

 private:
  void* data_ = nullptr;
};

DeviceArray floats(std::vector<int64_t> shape, float value) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return DeviceArray(BE::DType::Float32, shape, std::vector<float>(static_cast<size_t>(count), value));
}

void expect(const char* what, double found, double expected) {
  BE_CHECK(found == expected) << what << " gave " << found << ", expected " << expected;
}

}  // namespace

// What the source behind this one does.
static void exercised(cudaStream_t stream);

// On a stream of its own, as XLA's is. Prints what failed and returns 1, else 0.
extern "C" __attribute__((visibility("default"))) int exercise() {
  try {
    cudaStream_t stream = nullptr;
    BE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    exercised(stream);
    BE_CUDA_CHECK(cudaStreamDestroy(stream));
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
