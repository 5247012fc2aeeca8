"""Host functions from Python functions: a C function makes arrays of addresses and calls the Python function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.kernels.numba.cpu.compiled import HostFunction
from be_runtime.kernels.numba.cpu.report import report
from be_runtime.kernels.numba.cpu.signature import Parameter, Signature

_CFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Memory(NamedTuple):
    """The memory of an array.

    Parameters
    ----------
    address : int
        Address; 0 for an empty array.
    shape : tuple of int
    parameter : Parameter
        Dtype and rank of the array.
    readonly : bool
    """

    address: int
    shape: tuple[int, ...]
    parameter: Parameter
    readonly: bool


def python_function(
    function: Callable[..., None],
    signature: Signature,
    array: Callable[[Memory], Any],
    stream: Callable[[int], Any] | None = None,
    *,
    capturable: bool = False,
) -> HostFunction:
    """Make a host function that calls a Python function with arrays.

    Parameters
    ----------
    function : callable
        Python function, called with the inputs, the outputs and, if `stream` is given, the stream.
    signature : Signature
    array : callable
        Function that makes an array of memory.
    stream : callable, optional
        Function that makes a stream object of a stream's address.
    capturable : bool
        True if a command buffer may capture the function's launches.
    """
    parameters = [(parameter, True) for parameter in signature.inputs]
    parameters += [(parameter, False) for parameter in signature.outputs]
    count, total = len(parameters), sum(parameter.rank for parameter, _ in parameters)

    def run(data: int, extents: int, message: int) -> int:
        try:
            addresses = (ctypes.c_void_p * (count + 1)).from_address(data)
            sizes = list((ctypes.c_int64 * total).from_address(extents))
            places = _places(parameters, addresses[:count], sizes)
            streams = () if stream is None else (stream(addresses[count] or 0),)
            function(*map(array, places), *streams)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through C
            report(type(error), error, message)
            return 1
        return 0

    compiled = _CFunction(run)
    address = ctypes.cast(compiled, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return HostFunction(address, compiled, has_stream=stream is not None, capturable=capturable)


def _places(
    parameters: Sequence[tuple[Parameter, bool]], addresses: Sequence[int | None], extents: Sequence[int]
) -> list[Memory]:
    found, at = [], 0
    for (parameter, readonly), address in zip(parameters, addresses, strict=True):
        shape = tuple(extents[at : at + parameter.rank])
        found.append(Memory(address or 0, shape, parameter, readonly))
        at += parameter.rank
    return found
