#pragma once

/// \file
/// The functions of the CUDA driver that checked calls need, opened at run time.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace be_guard {

using Result = int;
using Address = uint64_t;
using Stream = void*;
using Graph = void*;
using GraphExec = void*;

constexpr unsigned kNonBlocking = 1;
constexpr int kRelaxedCapture = 2;
inline Stream const kLegacyStream = reinterpret_cast<Stream>(1);
inline Stream const kThreadStream = reinterpret_cast<Stream>(2);

/// The driver's functions; `problem` says why there are none.
struct DeviceDriver {
  std::string problem;
  Result (*cuCtxGetDevice)(int*) = nullptr;
  Result (*cuGetErrorName)(Result, const char**) = nullptr;
  Result (*cuGetErrorString)(Result, const char**) = nullptr;
  Result (*cuMemAlloc)(Address*, size_t) = nullptr;
  Result (*cuMemFree)(Address) = nullptr;
  Result (*cuMemsetD8Async)(Address, unsigned char, size_t, Stream) = nullptr;
  Result (*cuMemcpyDtoDAsync)(Address, Address, size_t, Stream) = nullptr;
  Result (*cuMemcpyDtoHAsync)(void*, Address, size_t, Stream) = nullptr;
  Result (*cuStreamCreate)(Stream*, unsigned) = nullptr;
  Result (*cuStreamDestroy)(Stream) = nullptr;
  Result (*cuStreamSynchronize)(Stream) = nullptr;
  Result (*cuStreamIsCapturing)(Stream, int*) = nullptr;
  Result (*cuStreamBeginCapture)(Stream, int) = nullptr;
  Result (*cuStreamEndCapture)(Stream, Graph*) = nullptr;
  Result (*cuGraphInstantiateWithFlags)(GraphExec*, Graph, unsigned long long) = nullptr;
  Result (*cuGraphLaunch)(GraphExec, Stream) = nullptr;
  Result (*cuGraphExecDestroy)(GraphExec) = nullptr;
  Result (*cuGraphDestroy)(Graph) = nullptr;

  DeviceDriver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = "there is no NVIDIA driver on this machine: libcuda.so.1 was not found";
      return;
    }
    find(library, "cuCtxGetDevice", &cuCtxGetDevice);
    find(library, "cuGetErrorName", &cuGetErrorName);
    find(library, "cuGetErrorString", &cuGetErrorString);
    find(library, "cuMemAlloc_v2", &cuMemAlloc);
    find(library, "cuMemFree_v2", &cuMemFree);
    find(library, "cuMemsetD8Async", &cuMemsetD8Async);
    find(library, "cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync);
    find(library, "cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync);
    find(library, "cuStreamCreate", &cuStreamCreate);
    find(library, "cuStreamDestroy_v2", &cuStreamDestroy);
    find(library, "cuStreamSynchronize", &cuStreamSynchronize);
    find(library, "cuStreamIsCapturing", &cuStreamIsCapturing);
    find(library, "cuStreamBeginCapture_v2", &cuStreamBeginCapture);
    find(library, "cuStreamEndCapture", &cuStreamEndCapture);
    find(library, "cuGraphInstantiateWithFlags", &cuGraphInstantiateWithFlags);
    find(library, "cuGraphLaunch", &cuGraphLaunch);
    find(library, "cuGraphExecDestroy", &cuGraphExecDestroy);
    find(library, "cuGraphDestroy", &cuGraphDestroy);
  }

  template <class T>
  void find(void* library, const char* name, T* function) {
    *function = reinterpret_cast<T>(dlsym(library, name));
    if (*function == nullptr) problem = std::string("the NVIDIA driver is too old: it has no ") + name;
  }

  std::string describe(Result result) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    return std::string(name ? name : "an unknown error") + " (" + (text ? text : "no description") + ")";
  }
};

/// Opened on first use, never closed.
inline const DeviceDriver& device_driver() {
  static const DeviceDriver* const opened = new DeviceDriver;
  return *opened;
}

}  // namespace be_guard
