"""Numba's CUDA arrays and streams over memory that is not Numba's, and a trial of what a CUDA graph can record."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import ArraySpec
from ..errors import ArgumentError
from ..numba_import import import_error
from .callback import Memory

_THREAD_LOCAL_CAPTURE = 1
"""The mode in which XLA captures: what isn't allowed is refused in the thread that captures."""


def import_cuda() -> Any:
    """``numba.cuda``.

    Raises
    ------
    ImportError
        Numba's CUDA support is not installed, or doesn't work with what else is.
    """
    try:
        from numba import cuda
    except (ImportError, AttributeError) as error:
        raise import_error("numba_cuda_callable", "numba-cuda", error) from error
    return cuda


def device_array(memory: Memory) -> Any:
    """A view of device memory."""
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
    """A stream that is not Numba's."""
    return import_cuda().external_stream(address)


def rehearse(
    function: Callable[..., None], name: str, inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec]
) -> None:
    """Run a function on arrays of zeros, once so that its kernels are loaded, and once to see if it can be recorded.

    Raises
    ------
    ArgumentError
        It does what a CUDA graph can't hold.
    """
    import numpy as np

    cuda = import_cuda()
    stream = cuda.stream()
    arrays = [cuda.to_device(np.zeros(spec.shape, spec.dtype.name), stream=stream) for spec in (*inputs, *outputs)]
    function(*arrays, stream)
    stream.synchronize()
    driver = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p(int(stream))
    failure: Exception | None = None
    status = driver.cuStreamBeginCapture_v2(handle, _THREAD_LOCAL_CAPTURE)
    if status == 0:
        try:
            function(*arrays, stream)
        except Exception as error:  # noqa: BLE001 - whatever it raises is why it can't be recorded
            failure = error
        status = _end_capture(driver, handle)
    if failure is not None or status != 0:
        reason = f"{type(failure).__name__}: {failure}" if failure is not None else _error_name(driver, status)
        raise ArgumentError(
            f"{name} can't be recorded into a CUDA graph: {reason}",
            hints=(
                "launch everything on the given stream, and neither synchronise, allocate nor copy to the host",
                "or pass graph=False: Python then runs at every call",
            ),
        ) from failure


def _end_capture(driver: ctypes.CDLL, stream: ctypes.c_void_p) -> int:
    graph = ctypes.c_void_p()
    status = int(driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
    if graph.value is not None:
        driver.cuGraphDestroy(graph)
    return status


def _error_name(driver: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"CUDA error %d" % status).decode()
