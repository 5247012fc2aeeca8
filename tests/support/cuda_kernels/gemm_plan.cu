// cuBLAS that CUDA graphs record: a handle for each device in the state of a call, and XLA's memory as its workspace.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <mutex>

#include "brainevent/common.h"
#include "brainevent/state.h"

static void check(cublasStatus_t status, const char* what) {
  BE_CHECK(status == CUBLAS_STATUS_SUCCESS) << what << " failed with status " << static_cast<int>(status);
}

static int handles, recorded;

// A handle has one stream at a time, so calls on a device take turns.
struct Handle {
  Handle() {
    check(cublasCreate(&cublas), "cublasCreate");
    ++handles;
  }
  ~Handle() { cublasDestroy(cublas); }
  cublasHandle_t cublas = nullptr;
  mutable std::mutex lock;
};

struct Plan {
  BE::PerDevice<Handle> handles;
};

// @BE matmul arg[n k] arg[k m] ret[n m] state scratch[33554432] stream
void matmul(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, const BE::State<Plan>& plan,
            BE::Workspace workspace, cudaStream_t stream) {
  const Handle& handle = plan->handles.get();
  const std::lock_guard<std::mutex> guard(handle.lock);
  check(cublasSetStream(handle.cublas, stream), "cublasSetStream");
  check(cublasSetWorkspace(handle.cublas, workspace.data(), workspace.size()), "cublasSetWorkspace");
  const int rows = int(a.size(0)), inner = int(a.size(1)), columns = int(b.size(1));
  const float one = 1.0f, zero = 0.0f;
  // Row-major out = a b is column-major out' = b' a'.
  check(cublasSgemm(handle.cublas, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &one, b.data_ptr<float>(), columns,
                    a.data_ptr<float>(), inner, &zero, out.data_ptr<float>(), columns),
        "cublasSgemm");
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  recorded += status == cudaStreamCaptureStatusActive;
}

extern "C" __attribute__((visibility("default"))) int count_handles() { return handles; }
extern "C" __attribute__((visibility("default"))) int count_recorded() { return recorded; }
