// The products of sparse.py on a GPU. Connection j of neuron i goes to neuron targets[i, j] with weights[i, j].

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "brainevent/common.h"
#include "cuda_common.h"

namespace {

constexpr bool kSumsInShared = true;  // where they fit
constexpr int kSumThreads = 1024, kListed = 8192, kInFlight = 2, kLeastPart = 128;
constexpr int kWarp = 32, kRowThreads = 256;

// --- loads of several elements at once ----------------------------------------------------------------------------------

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
    T at[kCount];
};

template <int kBytes>
struct Word;
template <>
struct Word<16> { using Type = uint4; };
template <>
struct Word<8> { using Type = uint2; };
template <>
struct Word<4> { using Type = unsigned; };
template <>
struct Word<2> { using Type = unsigned short; };

/// Reads what is used once, and so should not take the place of anything in the caches.
template <int kCount, typename T>
__device__ __forceinline__ Pack<T, kCount> read_once(const T* from) {
    using Type = typename Word<sizeof(T) * kCount>::Type;
    union {
        Type word;
        Pack<T, kCount> pack;
    } both;
    both.word = __ldcs(reinterpret_cast<const Type*>(from));
    return both.pack;
}

// --- currents -----------------------------------------------------------------------------------------------------------

__host__ __device__ constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }

/// Adds the part of the listed rows that belongs to this block to `sums`, in shared or in global memory.
template <int kStep, typename Target>
__device__ __forceinline__ void add_listed(const uint16_t* listed, unsigned rows, unsigned steps, const float* spikes,
                                           const Target* targets, const float* weights, int64_t n, float* sums) {
    const unsigned total = rows * steps;
    for (unsigned u = threadIdx.x; u < total; u += kInFlight * kSumThreads) {
        Pack<Target, kStep> target[kInFlight];
        Pack<float, kStep> weight[kInFlight];
        float spike[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            const unsigned place = (u + f * kSumThreads) / steps, step = u + f * kSumThreads - place * steps;
            if (place >= rows) break;
            const int64_t at = listed[place] * n + step * kStep;
            target[f] = read_once<kStep>(targets + at);
            weight[f] = read_once<kStep>(weights + at);
            spike[f] = spikes[listed[place]];
        }
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            if (u + f * kSumThreads >= total) break;
#pragma unroll
            for (int s = 0; s < kStep; ++s) atomicAdd(sums + target[f].at[s], spike[f] * weight[f].at[s]);
        }
    }
}

/// Adds a block's sums to those of all blocks. The blocks begin at different places, so that they don't meet.
__device__ __forceinline__ void add_sums(const float4* sums, int post, float* out) {
    const int quads = divide_up(post, 4), start = int64_t(quads) * blockIdx.y / gridDim.y;
    for (int i = threadIdx.x; i < quads; i += kSumThreads) {
        const int quad = i + start < quads ? i + start : i + start - quads;
        const float4 sum = sums[quad];
        if (sum.x == 0.0f && sum.y == 0.0f && sum.z == 0.0f && sum.w == 0.0f) continue;
        float* to = out + 4 * quad;
#if __CUDA_ARCH__ >= 900
        if (post % 4 == 0) {
            asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                         :: "l"(to), "f"(sum.x), "f"(sum.y), "f"(sum.z), "f"(sum.w) : "memory");
            continue;
        }
#endif
        const float parts[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            if (4 * quad + s < post) atomicAdd(to + s, parts[s]);
        }
    }
}

/// A block looks at some of the neurons of a sample, lists those that fire, and adds some of the connections of each.
///
/// L2 does about 50 additions a nanosecond at random places, and shared memory ten times as many. So a block sums in
/// its own shared memory first, unless it has so few connections to add that they are cheaper than its sums.
template <int kStep, typename Target>
__global__ void __launch_bounds__(kSumThreads)
add_rows(const float* __restrict__ spikes, const Target* __restrict__ targets, const float* __restrict__ weights,
         float* __restrict__ out, int pre, int n, int post, bool fits) {
    extern __shared__ float4 sums[];
    __shared__ uint16_t listed[kListed];
    __shared__ unsigned count;
    const int part = divide_up(n, gridDim.x * kStep) * kStep, first = blockIdx.x * part;
    const int steps = (min(first + part, n) - first) / kStep;
    const int group = divide_up(pre, gridDim.y), begin = blockIdx.y * group, end = min(begin + group, pre);
    if (steps <= 0) return;
    spikes += int64_t(blockIdx.z) * pre;
    out += int64_t(blockIdx.z) * post;
    bool has_sums = false;
    for (int from = begin; from < end; from += kListed) {
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        for (int i = from + threadIdx.x; i < min(from + kListed, end); i += kSumThreads) {
            if (spikes[i] != 0.0f) listed[atomicAdd(&count, 1u)] = i - from;
        }
        __syncthreads();
        const unsigned rows = count;
        if (fits && !has_sums && int64_t(rows) * steps * kStep * 8 > post) {
            for (int i = threadIdx.x; i < divide_up(post, 4); i += kSumThreads) sums[i] = float4{};
            has_sums = true;
            __syncthreads();
        }
        const int64_t at = int64_t(from) * n + first;
        if (has_sums) {
            float* own = reinterpret_cast<float*>(sums);
            add_listed<kStep>(listed, rows, steps, spikes + from, targets + at, weights + at, n, own);
        } else {
            add_listed<kStep>(listed, rows, steps, spikes + from, targets + at, weights + at, n, out);
        }
        __syncthreads();
    }
    if (has_sums) add_sums(sums, post, out);
}

// --- gradients ----------------------------------------------------------------------------------------------------------

/// A warp sums over one row of connections, for kWidth samples whose gradients lie side by side.
template <int kWidth, int kStep, typename Target>
__global__ void __launch_bounds__(kRowThreads)
gather_rows(const float* __restrict__ gradients, const Target* __restrict__ targets, const float* __restrict__ weights,
            float* __restrict__ out, int pre, int n, int batch) {
    const int row = blockIdx.x * (kRowThreads / kWarp) + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    if (row >= pre) return;  // the whole warp
    const float* values = gradients + blockIdx.y * kWidth;
    float sums[kWidth] = {};
#pragma unroll 2
    for (int j = lane * kStep; j < n; j += kWarp * kStep) {
        const auto target = read_once<kStep>(targets + int64_t(row) * n + j);
        const auto weight = read_once<kStep>(weights + int64_t(row) * n + j);
#pragma unroll
        for (int s = 0; s < kStep; ++s) {
            constexpr int kRead = kWidth == 1 ? 1 : 4;
#pragma unroll
            for (int b = 0; b < kWidth; b += kRead) {
                const auto* from = values + int64_t(target.at[s]) * batch + b;
                const auto value = *reinterpret_cast<const Pack<float, kRead>*>(from);
#pragma unroll
                for (int r = 0; r < kRead; ++r) sums[b + r] += weight.at[s] * value.at[r];
            }
        }
    }
#pragma unroll
    for (int b = 0; b < kWidth; ++b) {
        const float sum = warp_reduce_sum_f32(sums[b]);
        if (lane == 0) out[int64_t(blockIdx.y * kWidth + b) * pre + row] = sum;
    }
}

/// A block writes some rows of `out`, the products of spikes and values, or adds them to what is there.
///
/// It reads no connection of a neuron without a spike, and if it adds, it writes none either.
template <bool kAdds, int kStep, typename Target>
__global__ void __launch_bounds__(kRowThreads)
outer_rows(const float* __restrict__ spikes, const Target* __restrict__ targets, const float* __restrict__ values,
           float* __restrict__ out, int pre, int n, int post, int batch) {
    for (int row = blockIdx.x; row < pre; row += gridDim.x) {
        bool fires = false;
        for (int b = 0; b < batch; ++b) fires |= spikes[int64_t(b) * pre + row] != 0.0f;
        if (kAdds && !fires) continue;
        for (int j = threadIdx.x * kStep; j < n; j += kRowThreads * kStep) {
            auto& to = *reinterpret_cast<Pack<float, kStep>*>(out + int64_t(row) * n + j);
            Pack<float, kStep> sums = {};
            if (kAdds) sums = to;
            for (int b = 0; fires && b < batch; ++b) {
                const float spike = spikes[int64_t(b) * pre + row];
                if (spike == 0.0f) continue;
                const auto target = *reinterpret_cast<const Pack<Target, kStep>*>(targets + int64_t(row) * n + j);
#pragma unroll
                for (int s = 0; s < kStep; ++s) sums.at[s] += spike * values[int64_t(b) * post + target.at[s]];
            }
            to = sums;
        }
    }
}

// --- launches -----------------------------------------------------------------------------------------------------------

/// Calls `body` with the targets' pointer and the number of connections that can be read at once.
template <typename Body>
void with_targets(const BE::Tensor& targets, Body body) {
    const auto with_step = [&](const auto* pointer) {
        if (targets.size(1) % 4 == 0) return body(pointer, std::integral_constant<int, 4>());
        body(pointer, std::integral_constant<int, 1>());
    };
    if (targets.dtype() == BE::DType::UInt16) return with_step(targets.data_ptr<uint16_t>());
    with_step(targets.data_ptr<int32_t>());
}

int device_attribute(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    BE_CUDA_CHECK(cudaGetDevice(&device));
    BE_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
    return value;
}

template <bool kAdds>
void launch_products(const BE::Tensor& spikes, const BE::Tensor& targets, const BE::Tensor& values, BE::Tensor& out,
                     cudaStream_t stream) {
    const int batch = int(spikes.size(0)), pre = int(out.size(0)), n = int(out.size(1)), post = int(values.size(1));
    if (out.numel() == 0) return;
    const int blocks = device_attribute(cudaDevAttrMultiProcessorCount) * (2048 / kRowThreads);
    with_targets(targets, [&](const auto* pointer, auto step) {
        outer_rows<kAdds, step()><<<std::min(pre, blocks), kRowThreads, 0, stream>>>(
            spikes.data_ptr<float>(), pointer, values.data_ptr<float>(), out.data_ptr<float>(), pre, n, post, batch);
    });
    BE_CHECK_KERNEL_LAUNCH();
}

}  // namespace

// out[b, targets[i, j]] += spikes[b, i] * weights[i, j]; the order of the sums varies from run to run.
// @BE currents arg[b pre] arg[pre k] arg[pre k] ret[b attr.post]:float32=0 attr.post stream parallel[b] reduce[pre k]
void currents(const BE::Tensor spikes, const BE::Tensor targets, const BE::Tensor weights, BE::Tensor out,
              int64_t post, int64_t stream) {
    const int batch = int(spikes.size(0)), pre = int(spikes.size(1)), n = int(targets.size(1));
    if (out.numel() == 0 || targets.numel() == 0) return;
    const int bytes = divide_up(int(post), 4) * int(sizeof(float4));
    const int most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kListed * int(sizeof(uint16_t)) - 1024;
    const bool fits = kSumsInShared && bytes <= most;
    const int share = std::max(device_attribute(cudaDevAttrMultiProcessorCount) / batch, 1);
    const int parts = std::clamp(int(std::sqrt(float(share))), divide_up(n, 65536), divide_up(n, kLeastPart));
    const dim3 grid(parts, std::clamp(share / parts, 1, pre), batch);
    with_targets(targets, [&](const auto* pointer, auto step) {
        auto* kernel = add_rows<step(), std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>>;
        if (fits) BE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        kernel<<<grid, kSumThreads, fits ? bytes : 0, (cudaStream_t)stream>>>(
            spikes.data_ptr<float>(), pointer, weights.data_ptr<float>(), out.data_ptr<float>(), pre, n, int(post),
            fits);
    });
    BE_CHECK_KERNEL_LAUNCH();
}

// out[b, i] = sum over j of weights[i, j] * gradients[targets[i, j], b]
// @BE spike_gradients arg[post b] arg[pre k] arg[pre k] ret[b pre]:float32 stream parallel[b pre] reduce[k]
void spike_gradients(const BE::Tensor gradients, const BE::Tensor targets, const BE::Tensor weights, BE::Tensor out,
                     int64_t stream) {
    const int batch = int(gradients.size(1)), pre = int(targets.size(0)), n = int(targets.size(1));
    if (out.numel() == 0) return;
    with_targets(targets, [&](const auto* pointer, auto step) {
        const auto launch = [&](auto width) {
            const dim3 grid(divide_up(pre, kRowThreads / kWarp), batch / width());
            gather_rows<width(), step()><<<grid, kRowThreads, 0, (cudaStream_t)stream>>>(
                gradients.data_ptr<float>(), pointer, weights.data_ptr<float>(), out.data_ptr<float>(), pre, n, batch);
        };
        if (batch % 8 == 0) return launch(std::integral_constant<int, 8>());
        if (batch % 4 == 0) return launch(std::integral_constant<int, 4>());
        launch(std::integral_constant<int, 1>());
    });
    BE_CHECK_KERNEL_LAUNCH();
}

// out[i, j] = sum over b of spikes[b, i] * gradients[b, targets[i, j]]
// @BE weight_gradients arg[b pre] arg[pre k] arg[b post] ret[pre k]:float32 stream parallel[pre k] reduce[b]
void weight_gradients(const BE::Tensor spikes, const BE::Tensor targets, const BE::Tensor gradients, BE::Tensor out,
                      int64_t stream) {
    launch_products<false>(spikes, targets, gradients, out, (cudaStream_t)stream);
}

// weights[i, j] += sum over b of spikes[b, i] * changes[b, targets[i, j]], in place
// @BE learn arg[b pre] arg[pre k] inout[pre k]:float32 arg[b post] stream parallel[pre k]
void learn(const BE::Tensor spikes, const BE::Tensor targets, BE::Tensor weights, const BE::Tensor changes,
           int64_t stream) {
    launch_products<true>(spikes, targets, changes, weights, (cudaStream_t)stream);
}
