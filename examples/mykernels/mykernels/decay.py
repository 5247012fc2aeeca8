"""A Numba kernel for the CPU."""

import math

import numba


@numba.njit
def decay(v, out):
    """Exponential decay of each potential."""
    for i in range(v.size):
        out[i] = v[i] * math.exp(-0.1)
