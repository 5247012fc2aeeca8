"""A Numba kernel for GPUs."""

import math

from numba import cuda


@cuda.jit
def wave(x, out):
    """Sine of each element."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.sin(x[i])
