"""A Numba kernel for the CPU."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit
def decay(v: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """Exponential decay of each potential."""
    for i in range(v.size):
        out[i] = v[i] * math.exp(-0.1)
