/// \file
/// The CUDA driver, opened at run time, with the values of cuda.h that a launch needs.

#pragma once

#include <cstdint>

#include "../cuda_driver.h"

namespace be_launch {

using be_cuda::kRelaxedCapture, be_cuda::Result, be_cuda::Stream;
using Context = void*;
using Module = void*;
using Function = void*;

constexpr int kMaxThreads = 0, kStaticShared = 1, kMaxDynamicShared = 8, kNonPortableCluster = 14;
constexpr int kArchMajor = 75, kArchMinor = 76, kSharedOptin = 97;
constexpr int kCooperative = 2, kClusterDimension = 4;
constexpr int kJitErrorLog = 5, kJitErrorLogSize = 6;
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

/// The driver's functions; if there are none, `problem` gives the reason.
struct Driver : be_cuda::DriverLibrary {
  int device_count = 0;
  Result (*cuInit)(unsigned) = find("cuInit");
  Result (*cuDeviceGetCount)(int*) = find("cuDeviceGetCount");
  Result (*cuDeviceGetAttribute)(int*, int, int) = find("cuDeviceGetAttribute");
  Result (*cuDevicePrimaryCtxGetState)(int, unsigned*, int*) = find("cuDevicePrimaryCtxGetState");
  Result (*cuDevicePrimaryCtxRetain)(Context*, int) = find("cuDevicePrimaryCtxRetain");
  Result (*cuDevicePrimaryCtxRelease)(int) = find("cuDevicePrimaryCtxRelease_v2");
  Result (*cuCtxGetDevice)(int*) = find("cuCtxGetDevice");
  Result (*cuCtxPushCurrent)(Context) = find("cuCtxPushCurrent_v2");
  Result (*cuCtxPopCurrent)(Context*) = find("cuCtxPopCurrent_v2");
  Result (*cuModuleLoadDataEx)(Module*, const void*, unsigned, const int*, void**) = find("cuModuleLoadDataEx");
  Result (*cuModuleGetFunction)(Function*, Module, const char*) = find("cuModuleGetFunction");
  Result (*cuFuncGetAttribute)(int*, int, Function) = find("cuFuncGetAttribute");
  Result (*cuFuncSetAttribute)(Function, int, int) = find("cuFuncSetAttribute");
  Result (*cuThreadExchangeStreamCaptureMode)(int*) = find("cuThreadExchangeStreamCaptureMode");
  Result (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                           void**, void**) = find("cuLaunchKernel");
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**) = find("cuLaunchKernelEx");

  Driver() {
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
