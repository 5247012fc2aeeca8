#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include "tvm_ffi.cu"

TVM_FFI_DLL_EXPORT_TYPED_FUNC(vector_add, vector_add);
