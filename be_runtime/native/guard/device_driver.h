#pragma once

/// \file
/// The functions of the CUDA driver that checked calls need, opened at run time.

#include <cstddef>
#include <cstdint>

#include "../cuda_driver.h"

namespace be_guard {

using be_cuda::Result;
using Address = uint64_t;
using Stream = void*;
using Graph = void*;
using GraphExec = void*;

constexpr unsigned kNonBlocking = 1;
constexpr int kRelaxedCapture = 2;
inline Stream const kLegacyStream = reinterpret_cast<Stream>(1);
inline Stream const kThreadStream = reinterpret_cast<Stream>(2);

/// The driver's functions; `problem` says why there are none.
struct DeviceDriver : be_cuda::DriverLibrary {
  Result (*cuCtxGetDevice)(int*) = nullptr;
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
    find("cuCtxGetDevice", &cuCtxGetDevice);
    find("cuMemAlloc_v2", &cuMemAlloc);
    find("cuMemFree_v2", &cuMemFree);
    find("cuMemsetD8Async", &cuMemsetD8Async);
    find("cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync);
    find("cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync);
    find("cuStreamCreate", &cuStreamCreate);
    find("cuStreamDestroy_v2", &cuStreamDestroy);
    find("cuStreamSynchronize", &cuStreamSynchronize);
    find("cuStreamIsCapturing", &cuStreamIsCapturing);
    find("cuStreamBeginCapture_v2", &cuStreamBeginCapture);
    find("cuStreamEndCapture", &cuStreamEndCapture);
    find("cuGraphInstantiateWithFlags", &cuGraphInstantiateWithFlags);
    find("cuGraphLaunch", &cuGraphLaunch);
    find("cuGraphExecDestroy", &cuGraphExecDestroy);
    find("cuGraphDestroy", &cuGraphDestroy);
  }
};

/// Opened on first use, never closed.
inline const DeviceDriver& device_driver() {
  static const DeviceDriver* const opened = new DeviceDriver;
  return *opened;
}

}  // namespace be_guard
