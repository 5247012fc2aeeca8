"""The XLA FFI handler of a host function, compiled by Numba.

A call that is just what the function was compiled for goes straight to it, compiled together with it: what a kernel
doesn't ask of its arrays isn't read then, and an extent is memory that XLA keeps for each call of a program. Every
other call, a batch or a wrong one, goes to ``native/host_call.cc``, which runs it or says what is wrong.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from .intrinsics import intrinsics
from .report import MESSAGE_SIZE
from .signature import Parameter, Signature

_DTYPE_MASK = 0xFFFFFFFF
"""A dtype is the lower half of its word."""


class Layout(ctypes.Structure):
    """``Layout`` of ``native/host_call.cc``: which 64-bit word of XLA's structures holds what a handler reads."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("extension", "arg_count", "args", "ret_count", "rets", "dtype", "data", "rank", "dims")
    )


class Native(NamedTuple):
    """What a handler calls, as addresses.

    Parameters
    ----------
    kernel : int
        What the native side knows of the function.
    call : int
        Of a function of the call frame and the kernel: all that a handler does.
    failed : int
        Of a function of the call frame, the kernel and a message: an error.
    layout : Layout
    """

    kernel: int
    call: int
    failed: int
    layout: Layout


def compile_handler(native: Native, signature: Signature, guarded: Any | None) -> Any:
    """A handler, whose ``address`` XLA can call.

    Parameters
    ----------
    native : Native
    signature : Signature
    guarded : compiled function, optional
        Of pointers to the addresses and to the extents of all buffers, in a row; without it, the native side makes
        every call.
    """
    import numba
    from numba import types

    word = ctypes.c_uint64
    namespace: dict[str, Any] = intrinsics()._asdict() | {
        "kernel": native.kernel,
        "call": ctypes.CFUNCTYPE(word, word, word)(native.call),
        "failed": ctypes.CFUNCTYPE(word, word, word, word)(native.failed),
        "guarded": guarded,
    }
    direct = () if guarded is None else _direct(signature, native.layout)
    source = "\n".join(["def handle(frame):", *direct, "    return call(frame, kernel)"])
    exec(source, namespace)  # noqa: S102 - made of numbers and of names of ours
    return numba.cfunc(types.uint64(types.uint64))(namespace["handle"])


def _direct(signature: Signature, layout: Layout) -> Iterator[str]:
    """The lines that make a call which is as it should be: no question, no batch, and a result to compute."""
    arguments, results = signature.inputs, signature.outputs
    parameters = (*arguments, *results)
    starts = list(accumulate((parameter.rank for parameter in parameters), initial=0))
    counts = {layout.extension: 0, layout.arg_count: len(arguments), layout.ret_count: len(results)}
    places = [f"args[{index}]" for index in range(len(arguments))]
    places += [f"rets[{index}]" for index in range(len(results))]
    some = (
        _all(f"extents[{start + axis}] != 0" for axis in range(parameter.rank))
        for start, parameter in zip(starts[len(arguments) :], results, strict=False)
    )

    yield "    whole = words(frame)"
    yield f"    if {_all(f'whole[{at}] == {count}' for at, count in counts.items())}:"
    yield f"        args, rets = words(whole[{layout.args}]), words(whole[{layout.rets}])"
    yield from (f"        buffer{index} = words({place})" for index, place in enumerate(places))
    yield f"        if {_all(_fits(index, parameter, layout) for index, parameter in enumerate(parameters))}:"
    yield f"            data, extents = room({len(parameters)}), room({starts[-1] + 1})"
    for index, parameter in enumerate(parameters):
        yield f"            data[{index}] = buffer{index}[{layout.data}]"
        yield f"            dims = words(buffer{index}[{layout.dims}])"
        yield from (f"            extents[{starts[index] + axis}] = dims[{axis}]" for axis in range(parameter.rank))
    yield f"            if {' or '.join(some)}:"
    yield f"                message = room({MESSAGE_SIZE // 8})"
    yield "                if catching(guarded, data, extents, message) == 0:"
    yield "                    return 0"
    yield "                return failed(frame, kernel, address(message))"


def _all(conditions: Iterable[str]) -> str:
    return f"({' and '.join(conditions) or 'True'})"


def _fits(index: int, parameter: Parameter, layout: Layout) -> str:
    """Whether a buffer has the parameter's dtype and rank."""
    dtype = f"(buffer{index}[{layout.dtype}] & {_DTYPE_MASK}) == {parameter.dtype.xla_code}"
    return f"{dtype} and buffer{index}[{layout.rank}] == {parameter.rank}"
