// Calls a module and our libraries as XLA would, on a machine without Python: `call_as_xla MODULE FOLDER FILE`.

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  return reinterpret_cast<XLA_FFI_Error*>(strdup(args->message));
}
static XLA_FFI_Error* num_threads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  *args->num_threads = 4;
  return nullptr;
}
static XLA_FFI_Error* schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  std::thread(args->task, args->data).detach();
  return nullptr;
}

template <class F>
static F* symbol(const std::string& library, const char* name) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) printf("%s\n", dlerror());
  return reinterpret_cast<F*>(dlsym(opened, name));
}

static XLA_FFI_Api api;

// Call a handler with an array of 1000 elements, and return what it says and the sum of its result.
static std::string call(XLA_FFI_Handler* handler, XLA_FFI_DataType dtype, float first, bool has_array = true) {
  int64_t dims[] = {1000};
  std::vector<float> x(1000, 2), y(1000);
  x[0] = first;
  XLA_FFI_Buffer in{sizeof(in), nullptr, dtype, x.data(), 1, dims};
  XLA_FFI_Buffer out{sizeof(out), nullptr, XLA_FFI_DataType_F32, y.data(), 1, dims};
  void *ins[] = {&in}, *outs[] = {&out};
  XLA_FFI_ArgType arg_types[] = {XLA_FFI_ArgType_BUFFER};
  XLA_FFI_RetType ret_types[] = {XLA_FFI_RetType_BUFFER};
  XLA_FFI_CallFrame frame{sizeof(frame), nullptr, &api, nullptr, XLA_FFI_ExecutionStage_EXECUTE};
  frame.args = {sizeof(frame.args), nullptr, has_array, arg_types, ins};
  frame.rets = {sizeof(frame.rets), nullptr, 1, ret_types, outs};
  frame.attrs = {sizeof(frame.attrs), nullptr, 0, nullptr, nullptr, nullptr};
  XLA_FFI_Error* error = handler(&frame);
  if (error != nullptr) return reinterpret_cast<char*>(error);
  return "sum " + std::to_string(int64_t(std::accumulate(y.begin(), y.end(), 0.0)));
}

static int32_t copy(void* const* data, const int64_t* extents, char*) {
  memcpy(data[1], data[0], extents[0] * sizeof(float));
  return 0;
}
static const void* kernel;
static auto* host_call = static_cast<XLA_FFI_Error* (*)(XLA_FFI_CallFrame*, const void*)>(nullptr);
static XLA_FFI_Error* call_host(XLA_FFI_CallFrame* frame) { return host_call(frame, kernel); }

int main(int, char** argv) {
  api = {sizeof(api), nullptr, {sizeof(api.api_version), nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR}};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_ThreadPool_NumThreads = num_threads;
  api.XLA_FFI_ThreadPool_Schedule = schedule;
  const std::string folder = argv[2];

  auto* handler = symbol<XLA_FFI_Handler>(argv[1], "be_ffi_doubled_f");
  printf("%s\n", call(handler, XLA_FFI_DataType_F32, 2).c_str());
  printf("%s\n", call(handler, XLA_FFI_DataType_F32, -1).c_str());
  printf("%s\n", call(handler, XLA_FFI_DataType_S32, 2).c_str());
  printf("%s\n", call(handler, XLA_FFI_DataType_F32, 2, false).c_str());

  void* slot[2];
  symbol<int32_t(void*, void*, int32_t, const char*, void**)>(folder + "/guard.so", "be_guard_slot")(
      reinterpret_cast<void*>(handler), nullptr, 0, nullptr, slot);
  printf("%s\n", call(reinterpret_cast<XLA_FFI_Handler*>(slot[0]), XLA_FFI_DataType_F32, 2).c_str());

  auto* launch = symbol<XLA_FFI_Handler>(folder + "/launcher.so", "be_launch_execute");
  printf("%s\n", call(launch, XLA_FFI_DataType_F32, 2).c_str());

  struct {
    int32_t dtype, rank;
    int64_t item_size;
  } parameters[] = {{XLA_FFI_DataType_F32, 1, 4}, {XLA_FFI_DataType_F32, 1, 4}};
  kernel = symbol<void*(const char*, void*, bool, bool, uint32_t, int64_t, int64_t, void*)>(
      folder + "/host_call.so", "be_host_kernel")("copy", reinterpret_cast<void*>(copy), false, false, 0, 1, 2, parameters);
  host_call = symbol<XLA_FFI_Error*(XLA_FFI_CallFrame*, const void*)>(folder + "/host_call.so", "be_host_call");
  printf("%s\n", call(call_host, XLA_FFI_DataType_F32, 2).c_str());
  printf("%s\n", call(call_host, XLA_FFI_DataType_S32, 2).c_str());

  fclose(fopen(argv[3], "r"));
  return access("/absent/file", F_OK) + 1;
}
