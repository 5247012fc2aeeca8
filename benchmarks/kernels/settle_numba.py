"""`settle` as kernels of Numba; the number of steps is compiled in."""

from typing import Any

import numpy as np

STEP = np.float32(0.001)


def on_gpu(steps: int) -> Any:
    """One element a thread."""
    from numba import cuda

    @cuda.jit  # type: ignore[untyped-decorator]
    def settle(x: Any, y: Any) -> None:
        i, j = cuda.grid(2)
        if i < y.shape[0] and j < y.shape[1]:
            v = x[i, j]
            for _ in range(steps):
                v -= STEP * v * v * v
            y[i, j] = v

    return settle


def on_cpu(steps: int) -> Any:
    """All elements, one after the other."""
    from numba import njit

    @njit  # type: ignore[untyped-decorator]
    def settle(x: Any, y: Any) -> None:
        for i in range(y.shape[0]):
            for j in range(y.shape[1]):
                v = x[i, j]
                for _ in range(steps):
                    v -= STEP * v * v * v
                y[i, j] = v

    return settle
