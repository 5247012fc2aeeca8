// cuBLAS: a row-major matrix product. The handle is made by the first call and kept, so no graph may record that call.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "brainevent/common.h"

static void check(cublasStatus_t status, const char* what) {
  BE_CHECK(status == CUBLAS_STATUS_SUCCESS) << what << " failed with status " << static_cast<int>(status);
}

// @BE matmul
void matmul(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream) {
  static thread_local cublasHandle_t handle = nullptr;
  if (handle == nullptr) check(cublasCreate(&handle), "cublasCreate");
  check(cublasSetStream(handle, (cudaStream_t)stream), "cublasSetStream");
  const int rows = int(a.size(0)), inner = int(a.size(1)), columns = int(b.size(1));
  BE_CHECK(b.size(0) == inner) << "a has " << inner << " columns, b has " << b.size(0) << " rows";
  const float one = 1.0f, zero = 0.0f;
  // Row-major out = a b is column-major out' = b' a'.
  check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &one, b.data_ptr<float>(), columns,
                    a.data_ptr<float>(), inner, &zero, out.data_ptr<float>(), columns),
        "cublasSgemm");
}
