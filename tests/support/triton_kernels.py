"""Triton kernels, in a file that is a module of a package, too. Importing this needs Triton."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):
    """Add `scale` times the second array to the first."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + scale * tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def described(x, out, n, BLOCK: tl.constexpr):
    """Copy by a tensor descriptor made on the device: Triton wants global scratch memory for it."""
    d = tl.make_tensor_descriptor(x, shape=[n], strides=[1], block_shape=[BLOCK])
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), d.load([tl.program_id(0) * BLOCK]))


@triton.jit
def row_sums(x, out, n, k, BLOCK: tl.constexpr):
    """Add the numbers of each row."""
    i = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(tl.load(x + i * k + j, mask=(i < n) & (j < k), other=0.0)))
