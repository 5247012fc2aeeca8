#include <cstdint>
#include <cstdlib>

#include "xla/ffi/api/c_api.h"

#define BE_EXPORT extern "C" __attribute__((visibility("default")))

static bool answer_metadata(XLA_FFI_CallFrame* frame, int64_t state_type = 0) {
  const auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  if (state_type != 0) metadata->state_type_id.type_id = state_type;
  return true;
}

static XLA_FFI_Buffer* result(XLA_FFI_CallFrame* frame, int index) {
  return static_cast<XLA_FFI_Buffer*>(frame->rets.rets[index]);
}

static XLA_FFI_Error* add(XLA_FFI_CallFrame* frame, float* memory) {
  const float* x = static_cast<const float*>(static_cast<XLA_FFI_Buffer*>(frame->args.args[0])->data);
  const float* y = static_cast<const float*>(static_cast<XLA_FFI_Buffer*>(frame->args.args[1])->data);
  auto* out = result(frame, 0);
  float* z = static_cast<float*>(out->data);
  if (memory != nullptr) memory[0] = x[0];
  int64_t n = 1;
  for (int64_t i = 0; i < out->rank; ++i) n *= out->dims[i];
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
  return nullptr;
}

BE_EXPORT XLA_FFI_Error* declared(XLA_FFI_CallFrame* frame) {
  return answer_metadata(frame) ? nullptr : add(frame, static_cast<float*>(result(frame, 1)->data));
}

// Memory that a thread keeps.
static thread_local float* kept = nullptr;
BE_EXPORT XLA_FFI_Error* asked(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  if (kept == nullptr) kept = static_cast<float*>(aligned_alloc(64, 4096));
  return add(frame, kept);
}

static XLA_FFI_TypeId type{0};
static XLA_FFI_TypeInfo info{XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, [](void* state) { delete static_cast<int*>(state); }};

BE_EXPORT XLA_FFI_Error* instantiate(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr && type.type_id == 0) {
    XLA_FFI_Type_Register_Args args{};
    args.struct_size = XLA_FFI_Type_Register_Args_STRUCT_SIZE;
    args.name = {"benchmark", 9};
    args.type_id = &type;
    args.type_info = &info;
    if (XLA_FFI_Error* error = frame->api->XLA_FFI_Type_Register(&args)) return error;
  }
  if (answer_metadata(frame, type.type_id)) return nullptr;
  XLA_FFI_State_Set_Args args{};
  args.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  args.type_id = &type;
  args.state = new int(0);
  return frame->api->XLA_FFI_State_Set(&args);
}

BE_EXPORT XLA_FFI_Error* planned(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  XLA_FFI_State_Get_Args args{};
  args.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  args.type_id = &type;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&args)) return error;
  if (*static_cast<int*>(args.state) != 0) return nullptr;
  return add(frame, nullptr);
}
