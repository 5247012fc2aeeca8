// Checked calls of a pretended GPU: what each says is written to standard output, a line of JSON each.

#include "guard.cc"

#include <cstdio>

extern "C" void pretend_launch(void* stream, void (*kernel)(void*), void* argument);
extern "C" void pretend_fault(int result);
extern "C" void pretend_wait_inside(void* stream);

namespace {

char own_stream;
int64_t taken = 0;  // pieces of XLA's memory
constexpr int64_t kCount = 6;

const float* given_x;
float* given_y;

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  printf("{\"error\": %s}\n", be_guard::quoted(args->message).c_str());
  return reinterpret_cast<XLA_FFI_Error*>(&own_stream);
}
void destroy_error(XLA_FFI_Error_Destroy_Args*) {}
void get_message(void* args) { static_cast<be_xla::ErrorArgs*>(args)->message = "what the kernel said"; }
XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) { return args->stream = &own_stream, nullptr; }
XLA_FFI_Error* allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  return ++taken, args->data = aligned_alloc(256, (args->size + 255) / 256 * 256), nullptr;
}
XLA_FFI_Error* release(XLA_FFI_DeviceMemory_Free_Args* args) { return --taken, free(args->data), nullptr; }

template <void (*Kernel)(void*)>
XLA_FFI_Error* launch(XLA_FFI_CallFrame* frame, void* stream) {
  given_x = static_cast<const float*>(be_xla::buffer_at(frame, 0)->data);
  given_y = static_cast<float*>(be_xla::buffer_at(frame, 1)->data);
  pretend_launch(stream, Kernel, nullptr);
  return nullptr;
}

void twice(void*) { for (int i = 0; i < kCount; ++i) given_y[i] = 2 * given_x[i]; }
void some(void*) { for (int i = 0; i < kCount; ++i) if (i != 4) given_y[i] = 1; }
void ruins(void*) { pretend_fault(700); }

XLA_FFI_Error* right(XLA_FFI_CallFrame* frame) { return launch<twice>(frame, &own_stream); }
XLA_FFI_Error* wrong(XLA_FFI_CallFrame* frame) { return launch<twice>(frame, nullptr); }
XLA_FFI_Error* skips(XLA_FFI_CallFrame* frame) { return launch<some>(frame, &own_stream); }
XLA_FFI_Error* faults(XLA_FFI_CallFrame* frame) { return launch<ruins>(frame, &own_stream); }
XLA_FFI_Error* waits(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = right(frame);
  pretend_wait_inside(&own_stream);
  return error;
}

void call(const char* name, XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*)) {
  static XLA_FFI_Api api{};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_Destroy = destroy_error;
  const auto message = get_message;
  memcpy(reinterpret_cast<char*>(&api) + be_xla::kGetMessagePlace, &message, sizeof(message));
  api.XLA_FFI_Stream_Get = get_stream;
  api.XLA_FFI_DeviceMemory_Allocate = allocate;
  api.XLA_FFI_DeviceMemory_Free = release;
  float x[kCount] = {1, 2, 3, 4, 5, 6}, y[kCount] = {};
  int64_t dims[] = {kCount};
  XLA_FFI_Buffer in{}, out{};
  in.dtype = out.dtype = XLA_FFI_DataType_F32;
  in.rank = out.rank = 1;
  in.dims = out.dims = dims;
  in.data = x;
  out.data = y;
  void *args[] = {&in}, *rets[] = {&out};
  XLA_FFI_CallFrame frame{};
  frame.api = &api;
  frame.args.size = frame.rets.size = 1;
  frame.args.args = args;
  frame.rets.rets = rets;
  const std::string usual = std::string(name) + "\nprogram.py:3\n127\n2\n0";
  void* handlers[2];
  be_guard_slot(reinterpret_cast<void*>(handler), nullptr, 1, usual.c_str(), handlers);
  be_guard::slots[be_guard::slot_count - 1].inner_traits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  const bool failed = reinterpret_cast<be_guard::Handler*>(handlers[0])(&frame) != nullptr;
  static char room[1 << 16];
  printf("%.*s", static_cast<int>(be_guard_take(room, sizeof(room))), room);
  printf("{\"call\": \"%s\", \"failed\": %s, \"last\": %g, \"taken\": %lld}\n", name, failed ? "true" : "false", y[5],
         static_cast<long long>(taken));
}

}  // namespace

int main() {
  const char* names[] = {"right", "wrong", "skips", "waits", "faults", "right"};
  XLA_FFI_Error* (*handlers[])(XLA_FFI_CallFrame*) = {right, wrong, skips, waits, faults, right};
  for (int i = 0; i < 6; ++i) call(names[i], handlers[i]);
}
