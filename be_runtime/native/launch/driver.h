/// \file
/// The CUDA driver, opened at run time, with the values of cuda.h that a launch needs.

#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace be_launch {

using Result = int;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;

constexpr int kMaxThreads = 0, kStaticShared = 1, kMaxDynamicShared = 8, kNonPortableCluster = 14;
constexpr int kArchMajor = 75, kArchMinor = 76, kSharedOptin = 97;
constexpr int kCooperative = 2, kClusterDimension = 4;
constexpr int kJitErrorLog = 5, kJitErrorLogSize = 6;
constexpr int kRelaxedCapture = 2;
constexpr unsigned kDefaultDynamicShared = 48 * 1024;

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char room[64];
    unsigned cluster[3];
    int flag;
  } value;
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// The driver's functions; `problem` says why there are none.
struct Driver {
  std::string problem;
  int device_count = 0;
  Result (*cuInit)(unsigned) = nullptr;
  Result (*cuDeviceGetCount)(int*) = nullptr;
  Result (*cuDeviceGetAttribute)(int*, int, int) = nullptr;
  Result (*cuDevicePrimaryCtxGetState)(int, unsigned*, int*) = nullptr;
  Result (*cuDevicePrimaryCtxRetain)(Context*, int) = nullptr;
  Result (*cuDevicePrimaryCtxRelease)(int) = nullptr;
  Result (*cuCtxGetDevice)(int*) = nullptr;
  Result (*cuCtxPushCurrent)(Context) = nullptr;
  Result (*cuCtxPopCurrent)(Context*) = nullptr;
  Result (*cuModuleLoadDataEx)(Module*, const void*, unsigned, const int*, void**) = nullptr;
  Result (*cuModuleGetFunction)(Function*, Module, const char*) = nullptr;
  Result (*cuFuncGetAttribute)(int*, int, Function) = nullptr;
  Result (*cuFuncSetAttribute)(Function, int, int) = nullptr;
  Result (*cuThreadExchangeStreamCaptureMode)(int*) = nullptr;
  Result (*cuGetErrorName)(Result, const char**) = nullptr;
  Result (*cuGetErrorString)(Result, const char**) = nullptr;
  Result (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                           void**, void**) = nullptr;
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**) = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = "there is no NVIDIA driver on this machine: libcuda.so.1 was not found";
      return;
    }
    find(library, "cuInit", &cuInit);
    find(library, "cuDeviceGetCount", &cuDeviceGetCount);
    find(library, "cuDeviceGetAttribute", &cuDeviceGetAttribute);
    find(library, "cuDevicePrimaryCtxGetState", &cuDevicePrimaryCtxGetState);
    find(library, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
    find(library, "cuDevicePrimaryCtxRelease_v2", &cuDevicePrimaryCtxRelease);
    find(library, "cuCtxGetDevice", &cuCtxGetDevice);
    find(library, "cuCtxPushCurrent_v2", &cuCtxPushCurrent);
    find(library, "cuCtxPopCurrent_v2", &cuCtxPopCurrent);
    find(library, "cuModuleLoadDataEx", &cuModuleLoadDataEx);
    find(library, "cuModuleGetFunction", &cuModuleGetFunction);
    find(library, "cuFuncGetAttribute", &cuFuncGetAttribute);
    find(library, "cuFuncSetAttribute", &cuFuncSetAttribute);
    find(library, "cuThreadExchangeStreamCaptureMode", &cuThreadExchangeStreamCaptureMode);
    find(library, "cuGetErrorName", &cuGetErrorName);
    find(library, "cuGetErrorString", &cuGetErrorString);
    find(library, "cuLaunchKernel", &cuLaunchKernel);
    find(library, "cuLaunchKernelEx", &cuLaunchKernelEx);
    if (!problem.empty()) return;
    if (const Result result = cuInit(0)) {
      problem = "no GPU can be used: cuInit failed with " + describe(result);
    } else if (cuDeviceGetCount(&device_count) != 0 || device_count == 0) {
      problem = "no GPU is visible";
    }
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
inline const Driver& driver() {
  static const Driver* const opened = new Driver;
  return *opened;
}

}  // namespace be_launch
