// A hand-written handler of XLA for the function of vector_add_tvm.cu: it checks nothing.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include "xla/ffi/api/ffi.h"

extern "C" int __tvm_ffi_add(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

static DLTensor tensor_of(void* data, xla::ffi::AnyBuffer::Dimensions dims, int32_t device) {
  static int64_t strides[] = {1};
  return {data, {kDLCUDA, device}, 1, {kDLFloat, 32, 1}, const_cast<int64_t*>(dims.begin()), strides, 0};
}

static xla::ffi::Error CallAdd(cudaStream_t stream, int32_t device, xla::ffi::Buffer<xla::ffi::F32> a,
                               xla::ffi::Buffer<xla::ffi::F32> b, xla::ffi::ResultBuffer<xla::ffi::F32> out) {
  DLTensor tensors[] = {tensor_of(a.untyped_data(), a.dimensions(), device),
                        tensor_of(b.untyped_data(), b.dimensions(), device),
                        tensor_of(out->untyped_data(), out->dimensions(), device)};
  TVMFFIAny args[3] = {}, result = {};
  for (int i = 0; i < 3; ++i) {
    args[i].type_index = kTVMFFIDLTensorPtr;
    args[i].v_ptr = tensors + i;
  }
  TVMFFIStreamHandle before = nullptr;
  TVMFFIEnvSetStream(kDLCUDA, device, stream, &before);
  const int failed = __tvm_ffi_add(nullptr, args, 3, &result);
  TVMFFIEnvSetStream(kDLCUDA, device, before, nullptr);
  return failed ? xla::ffi::Error::Internal("the function failed") : xla::ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(call_add, CallAdd,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
