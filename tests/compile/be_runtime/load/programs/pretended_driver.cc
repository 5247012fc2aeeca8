// A CUDA driver without a GPU, in the host's memory: streams run at once, unless they are recorded.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

using Work = std::vector<std::function<void()>>;

Work* recorded = nullptr;
void* recording = nullptr;
int fault = 0;       // what every function says from now on
bool spoilt = false;  // the recording can't be used

int put(void* stream, std::function<void()> work) {
  if (fault != 0) return fault;
  if (recording != nullptr && stream == recording)
    recorded->push_back(work);
  else
    work();
  return fault;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void pretend_launch(void* stream, void (*kernel)(void*), void* argument) {
  put(stream, [=] { kernel(argument); });
}
EXPORT void pretend_fault(int result) { fault = result; }
EXPORT void pretend_wait_inside(void* stream) { spoilt = recording == stream; }

EXPORT int cuCtxGetDevice(int* device) { return *device = 0; }
EXPORT int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_PRETENDED", 0; }
EXPORT int cuGetErrorString(int, const char** text) { return *text = "a pretended fault", 0; }
EXPORT int cuMemAlloc_v2(uint64_t* address, size_t size) { return *address = reinterpret_cast<uint64_t>(malloc(size)), fault; }
EXPORT int cuMemFree_v2(uint64_t address) { return free(reinterpret_cast<void*>(address)), fault; }
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t size, void* stream) {
  return put(stream, [=] { memset(reinterpret_cast<void*>(to), byte, size); });
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* stream) {
  return put(stream, [=] { memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size); });
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  return put(stream, [=] { memcpy(to, reinterpret_cast<void*>(from), size); });
}
EXPORT int cuStreamCreate(void** stream, unsigned) { return *stream = malloc(1), fault; }
EXPORT int cuStreamDestroy_v2(void* stream) { return free(stream), fault; }
EXPORT int cuStreamSynchronize(void*) { return fault; }
EXPORT int cuStreamIsCapturing(void*, int* is) { return *is = 0; }
EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  return recording = stream, recorded = new Work, spoilt = false, 0;
}
EXPORT int cuStreamEndCapture(void*, void** graph) {
  return recording = nullptr, *graph = spoilt ? nullptr : recorded, spoilt ? 901 : 0;
}
EXPORT int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) { return *exec = graph, 0; }
EXPORT int cuGraphLaunch(void* exec, void*) {
  for (const auto& work : *static_cast<Work*>(exec)) work();
  return fault;
}
EXPORT int cuGraphExecDestroy(void*) { return 0; }
EXPORT int cuGraphDestroy(void*) { return 0; }
