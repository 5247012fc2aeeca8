#pragma once

/// \file
/// The reaction of a checked build to an invalid access: an exception on the host, a record on the device.
///
/// Device code continues with other memory, so that the context stays valid, and the trampoline throws the recorded
/// error. Each unit has a record of its own: with `-rdc`, the record of device code in another unit is not read.

#include "brainevent/dtype.h"

namespace BE::internal {

/// An invalid access through a tensor, which a checked build found on the host or on the device.
struct Access {
  enum Kind : int { kFine, kType, kCount, kOutside };

  /// On the device, the first thread that writes this member owns the record.
  int kind;
  bool through_at;
  bool on_device;
  int line;
  char file[160];
  /// The accessor as the compiler spells it, with `T`.
  char function[160];
  const void* data;
  DType dtype;
  /// The index and its axis' extent, or the numbers of indices and of axes.
  int64_t index, extent;
  int dimension;
  unsigned block[3], thread[3];
};

}  // namespace BE::internal

/// Compiled with the handler, not with every source: see brainevent/detail/access_error.h.
BE_INTERNAL_HIDDEN __attribute__((cold, noreturn)) void be_throw_access(const BE::internal::Access&);

#if defined(BE_INTERNAL_CHECKED)
namespace BE::internal {

#if defined(__CUDACC__)
static __device__ Access be_access;
static __device__ int be_access_taken;
static __device__ __attribute__((aligned(16))) unsigned char be_elsewhere[64];
#endif

template <int kSize>
BE_HD void copy_text(char (&to)[kSize], const char* from) noexcept {
  int length = 0;
  for (; length < kSize - 1 && from[length] != '\0'; ++length) to[length] = from[length];
  to[length] = '\0';
}

/// Return other memory to read and write instead of an element, in device code; the host has thrown before.
BE_HD inline const void* elsewhere([[maybe_unused]] const void* data) noexcept {
#if defined(BE_DEVICE_PASS)
  return be_elsewhere;
#else
  return data;
#endif
}

/// The end of a path, where its name is.
BE_HD inline const char* path_end(const char* path, int room) noexcept {
  int length = 0;
  while (path[length] != '\0') ++length;
  return length < room ? path : path + length - room + 1;
}

/// Report an access. The function returns in device code only.
BE_HD inline void report_access(Access access, const char* function, const char* file) {
#if defined(BE_DEVICE_PASS)
  if (atomicCAS(&be_access_taken, 0, 1) != 0) return;
  access.on_device = true;
  const unsigned places[] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z};
  for (int i = 0; i < 6; ++i) (i < 3 ? access.block[i] : access.thread[i - 3]) = places[i];
#endif
  copy_text(access.file, path_end(file, sizeof access.file));
  copy_text(access.function, function);
#if defined(BE_DEVICE_PASS)
  be_access = access;
#else
  be_throw_access(access);
#endif
}

}  // namespace BE::internal
#endif

/// Enclose the call of an entry point in its trampoline. A stream that is being recorded can't be queried.
#define BE_INTERNAL_FORGET_ACCESS(be_call)                                                            \
  const auto be_stream = static_cast<cudaStream_t>(be_call.be_stream);                                \
  cudaStreamCaptureStatus be_recorded = cudaStreamCaptureStatusNone;                                  \
  int be_taken = 0;                                                                                   \
  BE_CUDA_CHECK(cudaStreamIsCapturing(be_stream, &be_recorded));                                      \
  if (be_recorded == cudaStreamCaptureStatusNone)                                                     \
    BE_CUDA_CHECK(cudaMemcpyToSymbolAsync(::BE::internal::be_access_taken, &be_taken, sizeof be_taken, 0, \
                                          cudaMemcpyHostToDevice, be_stream));

#define BE_INTERNAL_THROW_ACCESS                                                                      \
  if (be_recorded == cudaStreamCaptureStatusNone) {                                                   \
    BE_INTERNAL_CUDA_CHECK("kernel execution", cudaStreamSynchronize(be_stream));                     \
    BE_CUDA_CHECK(cudaMemcpyFromSymbolAsync(&be_taken, ::BE::internal::be_access_taken, sizeof be_taken, 0, \
                                            cudaMemcpyDeviceToHost, be_stream));                      \
    BE_CUDA_CHECK(cudaStreamSynchronize(be_stream));                                                  \
  }                                                                                                   \
  if (be_taken != 0) {                                                                                \
    ::BE::internal::Access be_found;                                                                  \
    BE_CUDA_CHECK(cudaMemcpyFromSymbolAsync(&be_found, ::BE::internal::be_access, sizeof be_found, 0, \
                                            cudaMemcpyDeviceToHost, be_stream));                      \
    BE_CUDA_CHECK(cudaStreamSynchronize(be_stream));                                                  \
    be_throw_access(be_found);                                                                        \
  }
