#pragma once
// Device memory for the tests' programs.

#include <cuda_runtime.h>

#include <vector>

#include "brainevent/common.h"

template <class T>
class DeviceArray {
 public:
  DeviceArray(const T* values, size_t count) : count_(count) {
    BE_CUDA_CHECK(cudaMalloc(&data_, count_ * sizeof(T)));
    BE_CUDA_CHECK(cudaMemcpy(data_, values, count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.data(), values.size()) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  void fetch_to(T* values) const {
    BE_CUDA_CHECK(cudaMemcpy(values, data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
  }
  std::vector<T> fetch() const {
    std::vector<T> values(count_);
    fetch_to(values.data());
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};
