"""The XLA FFI handler of a host function, compiled by Numba.

An ordinary call, with exactly the arrays that the function was compiled for, goes straight to the function. The two
are compiled together, so properties of arrays that a kernel does not use are not read; an extent is in memory that XLA
keeps for each call of a program. Every other call, a batch or a wrong one, goes to ``native/host_call.cc``, which runs
it or reports the error.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.kernels.numba.cpu.intrinsics import Intrinsics, call_and_report
from be_runtime.kernels.numba.cpu.report import MESSAGE_SIZE
from be_runtime.kernels.numba.cpu.signature import Parameter, Signature

_DONE, _RAISED, _OTHER = range(3)
"""Outcomes of a call: it was made; the function raised; it is not an ordinary call and was not made."""

_ORDINARY = f"""
    message = room({MESSAGE_SIZE // 8})
    state = direct(guarded, frame, message)
    if state == {_DONE}:
        return 0
    if state == {_RAISED}:
        return failed(frame, kernel, address(message))
"""


class HandlerLayout(ctypes.Structure):
    """``Layout`` of ``native/host_call.cc``: the 64-bit words of XLA's structures that a handler reads, by index."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("extension", "arg_count", "args", "ret_count", "rets", "dtype", "data", "rank", "dims")
    )


class Native(NamedTuple):
    """The native functions and data of a handler.

    Parameters
    ----------
    kernel : int
        Address of the native side's description of the function.
    call : callable in compiled code
        Function of the call frame and the kernel that does all the work of a handler.
    failed : callable in compiled code
        Function of the call frame, the kernel and a message that makes an error.
    layout : HandlerLayout
    """

    kernel: int
    call: Any
    failed: Any
    layout: HandlerLayout


def at_addresses(kernel: int, call: int, failed: int, layout: HandlerLayout) -> Native:
    """Return functions and data of this process, by their addresses."""
    word = ctypes.c_uint64
    functions = ctypes.CFUNCTYPE(word, word, word)(call), ctypes.CFUNCTYPE(word, word, word, word)(failed)
    return Native(kernel, *functions, layout)


def compile_handler(native: Native, signature: Signature, guarded: Any | None, made: Intrinsics) -> Any:
    """Compile a handler, whose ``address`` XLA can call.

    Parameters
    ----------
    native : Native
    signature : Signature
    guarded : compiled function, optional
        Function of pointers to the addresses and to the extents of all buffers, one after the other. Without it, the
        native side makes every call.
    made : Intrinsics
    """
    import numba
    from numba import types

    namespace: dict[str, Any] = made._asdict() | {
        "kernel": native.kernel,
        "call": native.call,
        "failed": native.failed,
        "guarded": guarded,
        "direct": _direct(signature, native.layout, made),
    }
    ordinary = "" if guarded is None else _ORDINARY
    exec(f"def handle(frame):{ordinary}\n    return call(frame, kernel)", namespace)  # noqa: S102 - a text of ours
    return numba.cfunc(types.uint64(types.uint64))(namespace["handle"])


def _direct(signature: Signature, layout: HandlerLayout, made: Intrinsics) -> Any:
    """Define ``direct(guarded, frame, message)`` for compiled code: an ordinary call, whose outcome it returns."""
    from numba import types
    from numba.extending import intrinsic

    pointer = types.CPointer(types.int64)

    @intrinsic  # type: ignore[untyped-decorator]
    def direct(typing_context: Any, guarded: Any, frame: Any, message: Any) -> Any:
        inner = guarded.get_call_type(typing_context, (pointer, pointer), {})

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            def call(data: Any, extents: Any) -> Any:
                code = guarded.dispatcher
                return call_and_report(context, builder, code, inner, data, extents, arguments[2], made.reporter)

            return _Frame(builder, arguments[1], layout).ordinary_call(signature, call)

        return types.int32(guarded, frame, message), generate

    return direct


class _Frame:
    """Generator of LLVM instructions that read a call frame; Numba would need a tenth of a second to infer their types.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
    address : llvmlite.ir.Value
        Address of the frame.
    layout : HandlerLayout
    """

    def __init__(self, builder: Any, address: Any, layout: HandlerLayout) -> None:
        from llvmlite import ir

        self._builder = builder
        self._word = ir.IntType(64)
        self._layout = layout
        self._whole = self._words(address)

    def ordinary_call(self, signature: Signature, call: Callable[[Any, Any], Any]) -> Any:
        """Generate an ordinary call, which is no query and no batch and has a result to compute; return its outcome.

        Parameters
        ----------
        signature : Signature
        call : callable
            Function from pointers to addresses and to extents to the instructions of the call, whose value is its
            status.
        """
        from llvmlite import ir
        from numba.core import cgutils

        builder, layout = self._builder, self._layout
        arguments, results = signature.inputs, signature.outputs
        state = cgutils.alloca_once_value(builder, ir.IntType(32)(_OTHER))
        counts = {layout.extension: 0, layout.arg_count: len(arguments), layout.ret_count: len(results)}
        with self._where([self._is(self._whole, index, count) for index, count in counts.items()]):
            buffers = [*self._buffers(layout.args, len(arguments)), *self._buffers(layout.rets, len(results))]
            parameters = [*arguments, *results]
            with self._where([fit for pair in zip(buffers, parameters, strict=True) for fit in self._fits(*pair)]):
                extents = [self._extents(buffer, each.rank) for buffer, each in zip(buffers, parameters, strict=True)]
                some = [self._all([self._differs(value, 0) for value in each]) for each in extents[len(arguments) :]]
                with builder.if_then(functools.reduce(builder.or_, some), likely=True):
                    data = self._row([self._at(buffer, layout.data) for buffer in buffers])
                    builder.store(call(data, self._row([value for each in extents for value in each])), state)
        return builder.load(state)

    def _buffers(self, index: int, count: int) -> list[Any]:
        """Return pointers to the buffers, whose addresses are in an array that the frame points to."""
        row = self._words(self._at(self._whole, index))
        return [self._words(self._at(row, position)) for position in range(count)]

    def _fits(self, buffer: Any, parameter: Parameter) -> list[Any]:
        """Generate conditions that a buffer has the parameter's dtype, the lower half of its word, and rank."""
        from llvmlite import ir

        dtype = self._builder.trunc(self._at(buffer, self._layout.dtype), ir.IntType(32))
        is_one = self._builder.icmp_signed("==", dtype, dtype.type(parameter.dtype.xla_code))
        return [is_one, self._is(buffer, self._layout.rank, parameter.rank)]

    def _extents(self, buffer: Any, rank: int) -> list[Any]:
        dims = self._words(self._at(buffer, self._layout.dims))
        return [self._at(dims, axis) for axis in range(rank)]

    def _row(self, values: Sequence[Any]) -> Any:
        """Store values one after the other on the stack."""
        from numba.core import cgutils

        row = cgutils.alloca_once(self._builder, self._word, size=self._word(len(values) + 1))
        for index, value in enumerate(values):
            self._builder.store(value, self._builder.gep(row, [self._word(index)]))
        return row

    def _words(self, address: Any) -> Any:
        return self._builder.inttoptr(address, self._word.as_pointer())

    def _at(self, base: Any, index: int) -> Any:
        return self._builder.load(self._builder.gep(base, [self._word(index)]))

    def _is(self, base: Any, index: int, value: int) -> Any:
        return self._builder.icmp_signed("==", self._at(base, index), self._word(value))

    def _differs(self, value: Any, other: int) -> Any:
        return self._builder.icmp_signed("!=", value, self._word(other))

    def _all(self, conditions: Sequence[Any]) -> Any:
        from llvmlite import ir

        return functools.reduce(self._builder.and_, conditions, ir.IntType(1)(1))

    def _where(self, conditions: Sequence[Any]) -> Any:
        """Open a block that runs if all conditions hold."""
        return self._builder.if_then(self._all(conditions), likely=True)
