"""``2 * x + y`` in Triton; `LESS` elements at the end are not written."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def axpy(x, y, n, out, BLOCK: tl.constexpr, LESS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, 2 * tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=i < n - LESS)
