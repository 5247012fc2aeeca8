// mamba's selective scan, with its own functions that fill the kernels' parameters. B and C vary with time.
#define BE_TORCH_REFUSE_WHEN_CALLED
#include "selective_scan.cpp"

// @BE scan arg[b d l]:T arg[b d l]:T arg[d n]:float32 arg[b g n l]:T arg[b g n l]:T arg[d]:float32 arg[b d l]:T \
//     arg[d]:float32 ret[b d l]:T ret[b d l]:T ret[b d ceil(l/2048) 2*n]:float32 parallel[b] \
//     T=float32|float16|bfloat16
void scan(const at::Tensor u, const at::Tensor delta, const at::Tensor A, const at::Tensor B, const at::Tensor C,
          const at::Tensor D, const at::Tensor z, const at::Tensor bias, at::Tensor gated, at::Tensor out,
          at::Tensor states) {
    SSMParamsBase params;
    set_ssm_params_fwd(params, u.size(0), u.size(1), u.size(2), A.size(1), B.size(1), states.size(2), true, true, u,
                       delta, A, B, C, out, z, gated, D.data_ptr(), bias.data_ptr(), states.data_ptr(), true, true);
    DISPATCH_ITYPE_FLOAT_AND_HALF_AND_BF16(u.scalar_type(), "scan", [&] {
        selective_scan_fwd_cuda<input_t, float>(params, at::cuda::getCurrentCUDAStream());
    });
}

// @BE scan_back arg[b d l]:T arg[b d l]:T arg[d n]:float32 arg[b g n l]:T arg[b g n l]:T arg[d]:float32 arg[b d l]:T \
//     arg[d]:float32 arg[b d l]:T arg[b d m 2*n]:float32 arg[b d l]:T ret[b d l]:T ret[b d l]:T ret[d n]:float32=0 \
//     ret[b g n l]:float32=0 ret[b g n l]:float32=0 ret[d]:float32=0 ret[b d l]:T ret[d]:float32=0 \
//     T=float32|float16|bfloat16
void scan_back(const at::Tensor u, const at::Tensor delta, const at::Tensor A, const at::Tensor B, const at::Tensor C,
               const at::Tensor D, const at::Tensor z, const at::Tensor bias, const at::Tensor out,
               const at::Tensor states, const at::Tensor g, at::Tensor du, at::Tensor ddelta, at::Tensor dA,
               at::Tensor dB, at::Tensor dC, at::Tensor dD, at::Tensor dz, at::Tensor dbias) {
    SSMParamsBwd params;
    set_ssm_params_bwd(params, u.size(0), u.size(1), u.size(2), A.size(1), B.size(1), states.size(2), true, true, u,
                       delta, A, B, C, z, out, {}, D.data_ptr(), bias.data_ptr(), states.data_ptr(), g, du, ddelta, dA,
                       dB, dC, dz, dD.data_ptr(), dbias.data_ptr(), true, true, false);
    DISPATCH_ITYPE_FLOAT_AND_HALF_AND_BF16(u.scalar_type(), "scan_back", [&] {
        selective_scan_bwd_cuda<input_t, float>(params, at::cuda::getCurrentCUDAStream());
    });
}
