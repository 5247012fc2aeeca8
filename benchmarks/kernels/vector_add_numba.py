"""The vector-add as a Numba CUDA kernel."""

from typing import Any

from numba import cuda


@cuda.jit  # type: ignore[untyped-decorator]
def add_kernel(x: Any, y: Any, z: Any) -> None:
    """One element a thread."""
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]
