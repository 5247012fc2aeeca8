"""``2 * x + y`` in CuTe DSL; `less` elements at the end are not written."""

# mypy: disable-error-code="untyped-decorator"

import cutlass
from cutlass import cute


@cute.kernel
def _axpy(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, less: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    width, _, _ = cute.arch.block_dim()
    i = block * width + thread
    if i < cute.size(out) - less:
        out[i] = 2 * x[i] + y[i]


@cute.jit
def axpy(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, stream, less: cutlass.Constexpr = 0):  # noqa: ANN001
    blocks = cute.ceil_div(cute.size(out), 256)
    _axpy(x, y, out, less).launch(grid=[blocks, 1, 1], block=[256, 1, 1], stream=stream)
