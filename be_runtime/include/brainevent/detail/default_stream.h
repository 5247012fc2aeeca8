#pragma once

/// \file
/// `default_stream="xla"`: work on CUDA's default stream goes to the stream of the running call. The linker sends the
/// module's calls of CUDA's runtime to the functions `__wrap_*` here (`--wrap`), which call the runtime's own. Names
/// begin with `be_`, since the author's source comes before this.

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#error default_stream="xla" does not work with --default-stream per-thread or CUDA_API_PER_THREAD_DEFAULT_STREAM: leave it out
#endif

#include <cuda_runtime.h>

namespace BE::detail {

inline thread_local bool be_has_own_stream = false;
inline thread_local cudaStream_t be_own_stream = nullptr;

/// Makes a stream the default stream of this thread, for code of the module, until the end of the scope.
class OwnStream {
 public:
  explicit OwnStream(void* be_stream) noexcept : be_had_(be_has_own_stream), be_before_(be_own_stream) {
    be_has_own_stream = true;
    be_own_stream = static_cast<cudaStream_t>(be_stream);
  }
  ~OwnStream() {
    be_has_own_stream = be_had_;
    be_own_stream = be_before_;
  }
  OwnStream& operator=(OwnStream&&) = delete;

 private:
  bool be_had_;
  cudaStream_t be_before_;
};

inline cudaStream_t be_redirected(cudaStream_t be_stream) noexcept {
  const bool is_default = be_stream == nullptr || be_stream == cudaStreamLegacy || be_stream == cudaStreamPerThread;
  return be_has_own_stream && is_default ? be_own_stream : be_stream;
}

/// Return whether a blocking copy must wait for its end; a copy within device memory need not, as in CUDA's runtime.
inline bool be_must_wait(cudaMemcpyKind be_kind) noexcept { return be_kind != cudaMemcpyDeviceToDevice; }

}  // namespace BE::detail

#define BE_INTERNAL_WRAP(name, parameters)               \
  extern "C" cudaError_t __real_##name parameters;       \
  extern "C" __attribute__((weak, visibility("hidden"))) \
  cudaError_t __wrap_##name parameters

/// A function whose last parameter is the stream.
#define BE_INTERNAL_REDIRECT(name, parameters, ...) \
  BE_INTERNAL_WRAP(name, parameters) { return __real_##name(__VA_ARGS__, ::BE::detail::be_redirected(be_stream)); }

/// A blocking function, and its variant that takes a stream.
#define BE_INTERNAL_BLOCKING(name, parameters, waits, ...)                                         \
  BE_INTERNAL_WRAP(name, parameters) {                                                             \
    if (!::BE::detail::be_has_own_stream) return __real_##name(__VA_ARGS__);                       \
    const cudaError_t be_error = __real_##name##Async(__VA_ARGS__, ::BE::detail::be_own_stream);   \
    if (be_error != cudaSuccess || !(waits)) return be_error;                                      \
    return __real_cudaStreamSynchronize(::BE::detail::be_own_stream);                              \
  }

BE_INTERNAL_WRAP(cudaStreamSynchronize, (cudaStream_t be_stream)) {
  return __real_cudaStreamSynchronize(::BE::detail::be_redirected(be_stream));
}

extern "C" unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st*);
extern "C" __attribute__((weak, visibility("hidden"))) unsigned __wrap___cudaPushCallConfiguration(
    dim3 be_grid, dim3 be_block, size_t be_shared, struct CUstream_st* be_stream) {
  return __real___cudaPushCallConfiguration(be_grid, be_block, be_shared, ::BE::detail::be_redirected(be_stream));
}

BE_INTERNAL_REDIRECT(cudaLaunchKernel,
                     (const void* be_kernel, dim3 be_grid, dim3 be_block, void** be_args, size_t be_shared,
                      cudaStream_t be_stream),
                     be_kernel, be_grid, be_block, be_args, be_shared)
BE_INTERNAL_REDIRECT(cudaLaunchCooperativeKernel,
                     (const void* be_kernel, dim3 be_grid, dim3 be_block, void** be_args, size_t be_shared,
                      cudaStream_t be_stream),
                     be_kernel, be_grid, be_block, be_args, be_shared)
BE_INTERNAL_WRAP(cudaLaunchKernelExC,
                 (const cudaLaunchConfig_t* be_config, const void* be_kernel, void** be_args)) {
  cudaLaunchConfig_t be_changed = *be_config;
  be_changed.stream = ::BE::detail::be_redirected(be_changed.stream);
  return __real_cudaLaunchKernelExC(&be_changed, be_kernel, be_args);
}

BE_INTERNAL_REDIRECT(cudaMemcpyAsync,
                     (void* be_to, const void* be_from, size_t be_count, cudaMemcpyKind be_kind,
                      cudaStream_t be_stream),
                     be_to, be_from, be_count, be_kind)
BE_INTERNAL_BLOCKING(cudaMemcpy, (void* be_to, const void* be_from, size_t be_count, cudaMemcpyKind be_kind),
                     ::BE::detail::be_must_wait(be_kind), be_to, be_from, be_count, be_kind)
BE_INTERNAL_REDIRECT(cudaMemcpy2DAsync,
                     (void* be_to, size_t be_to_pitch, const void* be_from, size_t be_pitch, size_t be_width,
                      size_t be_height, cudaMemcpyKind be_kind, cudaStream_t be_stream),
                     be_to, be_to_pitch, be_from, be_pitch, be_width, be_height, be_kind)
BE_INTERNAL_BLOCKING(cudaMemcpy2D,
                     (void* be_to, size_t be_to_pitch, const void* be_from, size_t be_pitch, size_t be_width,
                      size_t be_height, cudaMemcpyKind be_kind),
                     ::BE::detail::be_must_wait(be_kind), be_to, be_to_pitch, be_from, be_pitch, be_width, be_height,
                     be_kind)
BE_INTERNAL_REDIRECT(cudaMemcpyToSymbolAsync,
                     (const void* be_to, const void* be_from, size_t be_count, size_t be_offset,
                      cudaMemcpyKind be_kind, cudaStream_t be_stream),
                     be_to, be_from, be_count, be_offset, be_kind)
BE_INTERNAL_BLOCKING(cudaMemcpyToSymbol,
                     (const void* be_to, const void* be_from, size_t be_count, size_t be_offset,
                      cudaMemcpyKind be_kind),
                     ::BE::detail::be_must_wait(be_kind), be_to, be_from, be_count, be_offset, be_kind)
BE_INTERNAL_REDIRECT(cudaMemcpyFromSymbolAsync,
                     (void* be_to, const void* be_from, size_t be_count, size_t be_offset, cudaMemcpyKind be_kind,
                      cudaStream_t be_stream),
                     be_to, be_from, be_count, be_offset, be_kind)
BE_INTERNAL_BLOCKING(cudaMemcpyFromSymbol,
                     (void* be_to, const void* be_from, size_t be_count, size_t be_offset, cudaMemcpyKind be_kind),
                     ::BE::detail::be_must_wait(be_kind), be_to, be_from, be_count, be_offset, be_kind)
BE_INTERNAL_REDIRECT(cudaMemsetAsync, (void* be_to, int be_value, size_t be_count, cudaStream_t be_stream), be_to,
                     be_value, be_count)
BE_INTERNAL_BLOCKING(cudaMemset, (void* be_to, int be_value, size_t be_count), false, be_to, be_value, be_count)
BE_INTERNAL_REDIRECT(cudaMemset2DAsync,
                     (void* be_to, size_t be_pitch, int be_value, size_t be_width, size_t be_height,
                      cudaStream_t be_stream),
                     be_to, be_pitch, be_value, be_width, be_height)
BE_INTERNAL_BLOCKING(cudaMemset2D, (void* be_to, size_t be_pitch, int be_value, size_t be_width, size_t be_height),
                     false, be_to, be_pitch, be_value, be_width, be_height)
BE_INTERNAL_REDIRECT(cudaMallocAsync, (void** be_memory, size_t be_count, cudaStream_t be_stream), be_memory,
                     be_count)
BE_INTERNAL_REDIRECT(cudaFreeAsync, (void* be_memory, cudaStream_t be_stream), be_memory)
BE_INTERNAL_REDIRECT(cudaEventRecord, (cudaEvent_t be_event, cudaStream_t be_stream), be_event)

#undef BE_INTERNAL_BLOCKING
#undef BE_INTERNAL_REDIRECT
#undef BE_INTERNAL_WRAP
