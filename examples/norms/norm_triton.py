"""RMS normalization in Triton."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from typing import Any

import triton
import triton.language as tl

import be_runtime


@triton.jit
def rms_norm(x, weight, y, n, eps, BLOCK: tl.constexpr):
    """Normalize a row, which the program's threads keep in registers."""
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * n + i
    row = tl.load(x + at, mask=i < n, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, 0) / n + eps)
    scales = tl.load(weight + i, mask=i < n, other=0).to(tl.float32)
    tl.store(y + at, row * scale * scales, mask=i < n)


def make(columns: int, _dtype: str, threads: int) -> Any:
    """Make the function for rows of `columns` elements, with `threads` threads for each row."""
    return be_runtime.triton_kernel(
        rms_norm,
        "arg[m n] arg[n] ret[m n] attr.eps:float32=1e-6 parallel[m]",
        grid="m",
        num_warps=threads // 32,
        vmap_method="expand_dims",
        BLOCK=triton.next_power_of_2(columns),
    )
