// Kernels as people write them for PyTorch: a gather with offsets, an atomic scatter, a row sum, complex numbers.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/detail/TensorInfo.cuh>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/complex.h>
#include <torch/extension.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")

template <typename scalar_t>
__global__ void scatter_add_kernel(const scalar_t* __restrict__ src,
                                   const at::cuda::detail::TensorInfo<int, int> index, scalar_t* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int at = at::cuda::detail::IndexToOffset<int, int, -1>::get(i, index);
    gpuAtomicAdd(out + index.data[at], __ldg(src + i));
}

// The host function has no stream of its own, as with PyTorch.
static void scatter_add_cuda(const at::Tensor& src, const at::Tensor& index, const at::Tensor& out) {
    CHECK_CUDA(src);
    const at::cuda::OptionalCUDAGuard guard(device_of(src));
    const auto stream = at::cuda::getCurrentCUDAStream();
    const int count = static_cast<int>(src.numel());
    if (count == 0) return;
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, src.scalar_type(), "scatter_add", [&] {
        scatter_add_kernel<scalar_t><<<(count + 127) / 128, 128, 0, stream>>>(
            src.data_ptr<scalar_t>(), at::cuda::detail::getTensorInfo<int, int>(index), out.data_ptr<scalar_t>(),
            count);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// @BE scatter_add arg[n] arg[n] ret=0 stream
void scatter_add(const at::Tensor src, const at::Tensor index, at::Tensor out, cudaStream_t) {
    scatter_add_cuda(src, index, out);
}

// @BE scatter_add_without_stream arg[n] arg[n] ret=0
void scatter_add_without_stream(const at::Tensor src, const at::Tensor index, at::Tensor out) {
    scatter_add_cuda(src, index, out);
}

template <typename scalar_t>
__global__ void row_sum_kernel(const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
                               torch::PackedTensorAccessor32<scalar_t, 1> out) {
    using opmath_t = at::opmath_type<scalar_t>;
    opmath_t sum = 0;
    for (int i = threadIdx.x; i < x.size(1); i += 32) sum += x[blockIdx.x][i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) out[blockIdx.x] = static_cast<scalar_t>(sum);
}

// @BE row_sum arg[n k] ret[n] stream
void row_sum(const torch::Tensor x, torch::Tensor out, cudaStream_t) {
    if (x.size(0) == 0) return;
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "row_sum", ([&] {
        row_sum_kernel<scalar_t><<<x.size(0), 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), out.packed_accessor32<scalar_t, 1>());
    }));
    C10_CUDA_CHECK(cudaGetLastError());
}

template <typename T>
__global__ void square_kernel(const c10::complex<T>* x, c10::complex<T>* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = std::conj(x[i]) * x[i] + T(1);
}

// @BE square arg[n] ret[n] stream
void square(const at::Tensor x, at::Tensor out, cudaStream_t stream) {
    const int count = static_cast<int>(x.numel());
    if (count == 0) return;
    square_kernel<float><<<(count + 127) / 128, 128, 0, stream>>>(
        x.data_ptr<c10::complex<float>>(), out.data_ptr<c10::complex<float>>(), count);
}
