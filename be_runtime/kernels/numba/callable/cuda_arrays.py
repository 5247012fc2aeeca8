"""Numba's CUDA arrays and streams over memory and streams that Numba does not own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from be_runtime.kernels.numba.callable.callback import Memory
from be_runtime.kernels.numba.numba_import import import_error


def import_cuda() -> Any:
    """Import ``numba.cuda``.

    Raises
    ------
    ImportError
        Numba's CUDA support is not installed, or doesn't work with other installed packages.
    """
    try:
        import_module("numba_cuda")  # without it, numba.cuda is Numba's own of old
        from numba import cuda
    except (ImportError, AttributeError) as error:
        raise import_error("numba_cuda_callable", "numba-cuda", error) from error
    return cuda


def device_array(memory: Memory) -> Any:
    """Make a view of device memory."""
    import numpy as np

    description = {
        "shape": memory.shape,
        "strides": None,
        "typestr": np.dtype(memory.parameter.dtype.name).str,
        "data": (memory.address, memory.readonly),
        "version": 3,
    }
    return import_cuda().from_cuda_array_interface(description, sync=False)


def device_stream(address: int) -> Any:
    """Make a stream object for a stream that Numba does not own."""
    return import_cuda().external_stream(address)
