"""RMS normalization in CuTe DSL."""

# ruff: noqa: ANN001, N803 - CuTe DSL reads the annotations of arrays and constants
# mypy: disable-error-code="no-untyped-def,untyped-decorator,valid-type"

import operator
from typing import Any

import cutlass
from cutlass import cute

import be_runtime


@cute.kernel
def rms_norm_kernel(x, weight, y, eps, COLUMNS: cutlass.Constexpr, THREADS: cutlass.Constexpr):
    """Normalize a row, which the block keeps in registers."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    width = 128 // x.element_type.width  # elements of one access
    tiles = COLUMNS // width
    vectors = -(-tiles // THREADS)
    row = cute.zipped_divide(x[block, None], cute.make_layout(width))
    scales = cute.zipped_divide(weight, cute.make_layout(width))
    out = cute.zipped_divide(y[block, None], cute.make_layout(width))

    kept = cute.make_rmem_tensor((width, vectors), x.element_type)
    kept.fill(0)
    for v in cutlass.range_constexpr(vectors):
        i = v * THREADS + thread
        if i < tiles:
            cute.autovec_copy(row[None, i], kept[None, v])
    values = kept.load().to(cutlass.Float32)
    total = (values * values).reduce(cute.ReductionOp.ADD, cutlass.Float32(0), 0)

    warps = THREADS // 32
    sums = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float32, warps), cute.make_layout(warps))
    total = cute.arch.warp_reduction(total, operator.add)
    if thread % 32 == 0:
        sums[thread // 32] = total
    cute.arch.sync_threads()
    total = sums.load().reduce(cute.ReductionOp.ADD, cutlass.Float32(0), 0)
    scale = cute.math.rsqrt(total / COLUMNS + eps)

    for v in cutlass.range_constexpr(vectors):
        i = v * THREADS + thread
        if i < tiles:
            result = kept[None, v].load().to(cutlass.Float32) * scale * scales[None, i].load().to(cutlass.Float32)
            kept[None, v].store(result.to(x.element_type))
            cute.autovec_copy(kept[None, v], out[None, i])


@cute.jit
def rms_norm(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    eps: cutlass.Float32,
    stream,
    COLUMNS: cutlass.Constexpr,
    THREADS: cutlass.Constexpr,
):
    """Launch a block for each row."""
    kernel = rms_norm_kernel(x, weight, y, eps, COLUMNS, THREADS)
    kernel.launch(grid=[x.shape[0], 1, 1], block=[THREADS, 1, 1], stream=stream)


def make(columns: int, _dtype: str, threads: int) -> Any:
    """Make the function for rows of `columns` elements, with `threads` threads for each row."""
    return be_runtime.cute_kernel(
        rms_norm,
        "arg[m n] arg[n] ret[m n] attr.eps:float32=1e-6 parallel[m]",
        divisible={"n": 8},
        COLUMNS=columns,
        THREADS=threads,
    )
