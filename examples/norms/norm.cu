// y = x / sqrt(mean(x * x) + eps) * weight, for each row of N elements. A block takes a row and keeps it in registers.
#include <cuda_bf16.h>

template <class T, int N, int THREADS>
__global__ void rms_norm(const T* x, const T* weight, T* y, float eps) {
    constexpr int WIDTH = 16 / sizeof(T);  // elements of one access
    constexpr int VECTORS = (N / WIDTH + THREADS - 1) / THREADS;
    struct alignas(16) Vector { T at[WIDTH]; };
    static_assert(N % WIDTH == 0, "a row is a multiple of 16 bytes");

    const long long row = static_cast<long long>(blockIdx.x) * (N / WIDTH);
    Vector kept[VECTORS];
    float total = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int i = v * THREADS + threadIdx.x;
        if (i >= N / WIDTH) break;
        kept[v] = reinterpret_cast<const Vector*>(x)[row + i];
        for (T each : kept[v].at) total += float(each) * float(each);
    }

    __shared__ float sums[THREADS / 32];
    for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(~0u, total, distance);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0;
    for (float each : sums) total += each;
    const float scale = rsqrtf(total / N + eps);

#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int i = v * THREADS + threadIdx.x;
        if (i >= N / WIDTH) break;
        const Vector scales = reinterpret_cast<const Vector*>(weight)[i];
        for (int k = 0; k < WIDTH; ++k) kept[v].at[k] = T(float(kept[v].at[k]) * scale * float(scales.at[k]));
        reinterpret_cast<Vector*>(y)[row + i] = kept[v];
    }
}
