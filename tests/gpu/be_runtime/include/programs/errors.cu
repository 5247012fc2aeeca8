// What the CUDA checks report, with the real runtime.
#include "device.h"
#include "expect.h"

__global__ void nothing() {}

__global__ void count(BE::Tensor tensor, int* out) {
  *out = tensor.numel_checked_int();
}

// CUDA 13 says InvalidValue where older releases said InvalidConfiguration.
static bool is_refusal(const BE::CudaError& error) {
  return error.code() == cudaErrorInvalidConfiguration || error.code() == cudaErrorInvalidValue;
}

static void refused_launches() {
  nothing<<<0, 32>>>();
  const auto empty = thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH(); });
  EXPECT(is_refusal(empty) && strstr(empty.what(), "with an empty array") != nullptr);
  nothing<<<1, 4096>>>();
  EXPECT(is_refusal(thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH_SYNC(); })));
  nothing<<<1, 32>>>();
  BE_CHECK_KERNEL_LAUNCH_SYNC();
}

static void recorded_graphs() {
  cudaStream_t stream;
  cudaGraph_t graph;
  BE_CUDA_CHECK(cudaStreamCreate(&stream));
  BE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  nothing<<<1, 32, 0, stream>>>();
  BE_CHECK_KERNEL_LAUNCH();
  BE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  BE_CUDA_CHECK(cudaGraphDestroy(graph));

  BE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  nothing<<<1, 32, 0, stream>>>();
  const auto sync = thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH_SYNC(); });
  EXPECT(sync.code() == cudaErrorStreamCaptureUnsupported);
  EXPECT(strstr(sync.what(), "kernel execution failed") != nullptr && strstr(sync.what(), "allow_cuda_graph=False"));
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  BE_CUDA_CHECK(cudaStreamDestroy(stream));
}

// The last one: after a trap the device is lost to this process.
static void failed_kernels() {
  const int64_t dims[] = {3000000000};
  const DeviceArray<int> out({0});
  count<<<1, 1>>>(BE::Tensor(nullptr, BE::DType::Int8, 1, dims), out.data());
  const auto error = thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH_SYNC(); });
  EXPECT(strstr(error.what(), "kernel execution failed: ") != nullptr && error.code() != cudaSuccess);
}

int main() {
  refused_launches();
  recorded_graphs();
  failed_kernels();
}
