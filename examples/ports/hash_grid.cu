// torch-ngp's hash grid. Each entry point calls a host function of torch-ngp, which takes all sizes as arguments.
#include "gridencoder.cu"

// @BE encode arg[b d]:float32 arg[p c]:T arg[m]:int32 ret[m-1 b c]:T ret?[b (m-1)*d*c]:T T=float32|float16 \
//     attr.log2_growth:float32 attr.base:uint32 attr.tiled:bool=false attr.smooth:bool=false
void encode(const at::Tensor x, const at::Tensor table, const at::Tensor offsets, at::Tensor out, BE::Tensor* slopes,
            float log2_growth, uint32_t base, bool tiled, bool smooth) {
    grid_encode_forward(x, table, offsets, out, x.size(0), x.size(1), table.size(1), out.size(0), log2_growth, base,
                        slopes ? at::optional<at::Tensor>(*slopes) : at::nullopt, tiled, false, smooth);
}

// @BE encode_back arg[l b c]:T arg[b d]:float32 arg[p c]:T arg[m]:int32 arg[b l*d*c]:T ret[p c]:T=0 ret[b d]:T \
//     T=float32|float16 attr.log2_growth:float32 attr.base:uint32 attr.tiled:bool=false attr.smooth:bool=false
void encode_back(const at::Tensor g, const at::Tensor x, const at::Tensor table, const at::Tensor offsets,
                 const at::Tensor slopes, at::Tensor dtable, at::Tensor dx, float log2_growth, uint32_t base, bool tiled,
                 bool smooth) {
    grid_encode_backward(g, x, table, offsets, dtable, x.size(0), x.size(1), table.size(1), g.size(0), log2_growth, base,
                         slopes, dx, tiled, false, smooth);
}
