"""``2 * x + y`` in Numba, and a kernel that does not write the last element."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from tests.support.numba_kernels import cuda


@cuda.jit
def axpy(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i] + y[i]


@cuda.jit
def lacking(x, y, out):
    i = cuda.grid(1)
    if i < out.size - 1:
        out[i] = 2 * x[i] + y[i]
