// pytorch_scatter's kernels. Its host functions allocate, so the entry points launch.
#define BE_TORCH_REFUSE_WHEN_CALLED
#include "cuda/scatter_cuda.cu"

// @BE scatter_sum arg[e k] arg[e k]:int64 ret[attr.n k]:like(0)=0 attr.n:int64 stream
void scatter_sum(const at::Tensor src, const at::Tensor index, at::Tensor out, int64_t n, cudaStream_t stream) {
    const int count = src.numel(), e = src.size(0), k = src.size(1);
    if (count == 0) return;
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, src.scalar_type(), "scatter_sum", [&] {
        scatter_kernel<scalar_t, SUM><<<BLOCKS(count), THREADS, 0, stream>>>(
            src.data_ptr<scalar_t>(), at::cuda::detail::getTensorInfo<int64_t, int>(index), out.data_ptr<scalar_t>(), e,
            k, static_cast<int>(n), count);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// @BE scatter_max arg[e k] arg[e k]:int64 inout[n k]:like(0) inout[n k]:int64 stream
void scatter_max(const at::Tensor src, const at::Tensor index, at::Tensor out, at::Tensor argmax, cudaStream_t stream) {
    const int count = src.numel(), e = src.size(0), k = src.size(1), n = out.size(0);
    if (count == 0) return;
    const auto places = at::cuda::detail::getTensorInfo<int64_t, int>(index);
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, src.scalar_type(), "scatter_max", [&] {
        auto from = src.data_ptr<scalar_t>();
        auto to = out.data_ptr<scalar_t>();
        scatter_kernel<scalar_t, MAX><<<BLOCKS(count), THREADS, 0, stream>>>(from, places, to, e, k, n, count);
        scatter_arg_kernel<scalar_t><<<BLOCKS(count), THREADS, 0, stream>>>(
            from, places, to, argmax.data_ptr<int64_t>(), e, k, n, count);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
