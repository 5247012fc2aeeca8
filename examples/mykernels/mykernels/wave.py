"""A Numba kernel for GPUs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba_cuda_mlir import cuda


@cuda.jit
def wave(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """Sine of each element."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.sin(x[i])
