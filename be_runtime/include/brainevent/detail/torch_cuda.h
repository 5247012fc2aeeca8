#pragma once

/// \file
/// The part of brainevent/torch_compat.h that needs a CUDA compiler: the stream of the call, atomic additions, offsets.

#include <cuda_runtime.h>

#include "brainevent/torch_compat.h"

namespace BE::detail {

struct TorchStream {
  cudaStream_t handle;
  bool is_known;
};

/// The stream of the call that runs on this thread. Hidden: each module has its own.
__attribute__((visibility("hidden"))) inline thread_local TorchStream be_torch_stream{nullptr, false};

/// Sets the stream for the time of a call.
class StreamOfCall {
 public:
  explicit StreamOfCall(void* handle) noexcept : outer_(be_torch_stream) {
    be_torch_stream = {static_cast<cudaStream_t>(handle), true};
  }
  ~StreamOfCall() { be_torch_stream = outer_; }
  StreamOfCall(const StreamOfCall&) = delete;
  StreamOfCall& operator=(const StreamOfCall&) = delete;

 private:
  TorchStream outer_;
};

}  // namespace BE::detail

#undef BE_INTERNAL_STREAM_OF_CALL
#define BE_INTERNAL_STREAM_OF_CALL(stream) ::BE::detail::StreamOfCall be_stream_of_call(stream);

namespace c10::cuda {

/// XLA's stream of a call.
class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t handle) noexcept : handle_(handle) {}
  cudaStream_t stream() const noexcept { return handle_; }
  operator cudaStream_t() const noexcept { return handle_; }  // NOLINT: implicit on purpose

 private:
  cudaStream_t handle_;
};

/// Return the stream of the call that runs on this thread. Throw `BE::CheckError` if none runs.
inline CUDAStream getCurrentCUDAStream(int = -1) {
  if (!BE::detail::be_torch_stream.is_known)
    throw BE::CheckError(
        "getCurrentCUDAStream(): this thread runs no entry point whose file includes brainevent/torch_compat.h; include "
        "it in the file of the entry point, and call from the thread of the call");
  return CUDAStream(BE::detail::be_torch_stream.handle);
}

/// XLA has chosen the device of a call; nothing changes it.
struct CUDAGuard {
  template <class T>
  explicit CUDAGuard(const T&) noexcept {}
};
using OptionalCUDAGuard = CUDAGuard;
inline void MaybeSetDevice(int) noexcept {}

}  // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

namespace detail {

/// A tensor for a kernel that computes offsets of elements itself.
template <class T, class Index>
struct TensorInfo {
  T* data;
  Index sizes[BE::kMaxDim];
  Index strides[BE::kMaxDim];
  int dims;
};

template <class T, class Index>
TensorInfo<T, Index> getTensorInfo(const Tensor& x) {
  TensorInfo<T, Index> info{};
  info.data = x.data_ptr<T>();
  info.dims = static_cast<int>(x.dim());
  for (int i = 0; i < info.dims; ++i) {
    info.sizes[i] = static_cast<Index>(x.size(i));
    info.strides[i] = static_cast<Index>(x.stride(i));
  }
  return info;
}

/// Return the offset of the element at a position in row-major order.
template <class T, class Index, int>
struct IndexToOffset {
  static BE_HD Index get(Index place, const TensorInfo<T, Index>& info) {
    Index offset = 0;
    for (int i = info.dims - 1; i > 0; --i) {
      offset += place % info.sizes[i] * info.strides[i];
      place /= info.sizes[i];
    }
    return info.dims > 0 ? offset + place * info.strides[0] : 0;
  }
};

}  // namespace detail
}  // namespace at::cuda

namespace BE::detail {

/// Add to 8 or 16 bits by exchanging the 32 bits around them.
template <class T>
__device__ inline T be_add_within_word(T* address, T value) {
  const size_t place = reinterpret_cast<size_t>(address);
  unsigned* word = reinterpret_cast<unsigned*>(place & ~size_t{3});
  const unsigned shift = static_cast<unsigned>(place & 3) * 8;
  const unsigned mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
  using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
  unsigned seen = *word;
  while (true) {
    const T old = internal::bits_as<T>(static_cast<Bits>((seen & mask) >> shift));
    const unsigned sum = internal::bits_as<Bits>(static_cast<T>(old + value));
    const unsigned found = atomicCAS(word, seen, (seen & ~mask) | sum << shift);
    if (found == seen) return old;
    seen = found;
  }
}

}  // namespace BE::detail

/// Add atomically and return the old value. In the global namespace, as with torch.
template <class T, class Value>
__device__ inline T gpuAtomicAdd(T* address, Value given) {
  const T value = static_cast<T>(given);
  if constexpr (std::is_same_v<T, c10::Half>)
    return atomicAdd(reinterpret_cast<__half*>(address), value.operator __half());
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  else if constexpr (std::is_same_v<T, c10::BFloat16>)
    return atomicAdd(reinterpret_cast<__nv_bfloat16*>(address), value.operator __nv_bfloat16());
#endif
  else if constexpr (sizeof(T) <= 2)
    return BE::detail::be_add_within_word(address, value);
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return static_cast<T>(
        atomicAdd(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value)));
  else
    return atomicAdd(address, value);
}
template <class T, class Value>
__device__ inline void gpuAtomicAdd(c10::complex<T>* address, const Value& given) {
  const c10::complex<T> value(given);
  atomicAdd(&address->real_, value.real_);
  atomicAdd(&address->imag_, value.imag_);
}
template <class T, class Value>
__device__ inline void gpuAtomicAddNoReturn(T* address, Value value) {
  gpuAtomicAdd(address, value);
}

__device__ inline c10::Half __ldg(const c10::Half* address) { return __ldg(reinterpret_cast<const __half*>(address)); }
__device__ inline c10::BFloat16 __ldg(const c10::BFloat16* address) {
  return c10::BFloat16(__ldg(reinterpret_cast<const uint16_t*>(address)), c10::BFloat16::from_bits());
}

// Templates, so that an author's own overloads for at::Half come first.
#define BE_INTERNAL_TORCH_SHUFFLE(NAME, PLACE)                                                                    \
  template <class T, class = std::enable_if_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>>>  \
  __device__ inline T NAME(unsigned mask, T value, PLACE place, int width = 32) {                                 \
    return T(static_cast<uint16_t>(NAME(mask, static_cast<unsigned>(value.x), place, width)), T::from_bits());    \
  }
BE_INTERNAL_TORCH_SHUFFLE(__shfl_sync, int)
BE_INTERNAL_TORCH_SHUFFLE(__shfl_up_sync, unsigned)
BE_INTERNAL_TORCH_SHUFFLE(__shfl_down_sync, unsigned)
BE_INTERNAL_TORCH_SHUFFLE(__shfl_xor_sync, int)

#define C10_CUDA_CHECK(...) BE_CUDA_CHECK(__VA_ARGS__)
#define AT_CUDA_CHECK(...) BE_CUDA_CHECK(__VA_ARGS__)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() BE_CHECK_KERNEL_LAUNCH()
