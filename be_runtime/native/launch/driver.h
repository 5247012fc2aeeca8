/// \file
/// The CUDA driver, opened at run time, with the values of cuda.h that a launch needs.

#pragma once

#include <cstdint>

#include "../cuda_driver.h"

namespace be_launch {

using be_cuda::Result;
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
struct Driver : be_cuda::DriverLibrary {
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
  Result (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                           void**, void**) = nullptr;
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**) = nullptr;

  Driver() {
    find("cuInit", &cuInit);
    find("cuDeviceGetCount", &cuDeviceGetCount);
    find("cuDeviceGetAttribute", &cuDeviceGetAttribute);
    find("cuDevicePrimaryCtxGetState", &cuDevicePrimaryCtxGetState);
    find("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
    find("cuDevicePrimaryCtxRelease_v2", &cuDevicePrimaryCtxRelease);
    find("cuCtxGetDevice", &cuCtxGetDevice);
    find("cuCtxPushCurrent_v2", &cuCtxPushCurrent);
    find("cuCtxPopCurrent_v2", &cuCtxPopCurrent);
    find("cuModuleLoadDataEx", &cuModuleLoadDataEx);
    find("cuModuleGetFunction", &cuModuleGetFunction);
    find("cuFuncGetAttribute", &cuFuncGetAttribute);
    find("cuFuncSetAttribute", &cuFuncSetAttribute);
    find("cuThreadExchangeStreamCaptureMode", &cuThreadExchangeStreamCaptureMode);
    find("cuLaunchKernel", &cuLaunchKernel);
    find("cuLaunchKernelEx", &cuLaunchKernelEx);
    if (!problem.empty()) return;
    if (const Result result = cuInit(0)) {
      problem = "no GPU can be used: cuInit failed with " + describe(result);
    } else if (cuDeviceGetCount(&device_count) != 0 || device_count == 0) {
      problem = "no GPU is visible";
    }
  }
};

/// Opened on first use, never closed.
inline const Driver& driver() {
  static const Driver* const opened = new Driver;
  return *opened;
}

}  // namespace be_launch
