"""Instructions that compiled code of Numba needs and Numba has no function for.

What catches an exception uses the objects that Numba hands to every intrinsic in the way Numba's own ``cfunc`` does; no
public function tells the name of an exception to compiled code.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from be_runtime.kernels.numba.cpu.report import report


class Intrinsics(NamedTuple):
    """Functions for compiled code.

    Parameters
    ----------
    constant : callable
        ``constant(array)``: the same array as a read-only one.
    catching : callable
        ``catching(function, data, extents, message)``: call a compiled function with the first two; 0, or 1 when it
        raised, which is reported to the message.
    address : callable
        ``address(pointer)``: the address of such words.
    memory : callable
        ``memory(address)``: a pointer to what has no type.
    room : callable
        ``room(count)``: a pointer to so many words, a literal number, of the caller's stack; the first is 0.
    """

    constant: Any
    catching: Any
    address: Any
    memory: Any
    room: Any


@functools.cache
def intrinsics() -> Intrinsics:
    """Made at first use, since they need Numba."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def constant(_context: Any, array: Any) -> Any:
        """The same array as a read-only one."""
        return array.copy(readonly=True)(array), lambda _context, _builder, _signature, arguments: arguments[0]

    @intrinsic  # type: ignore[untyped-decorator]
    def catching(typing_context: Any, function: Any, data: Any, extents: Any, message: Any) -> Any:
        """Call a compiled function; 0, or 1 when it raised, which is reported to the message."""
        inner = function.get_call_type(typing_context, (data, extents), {})

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return call_and_report(context, builder, function.dispatcher, inner, *arguments[1:])

        return types.int32(function, data, extents, message), generate

    pointer = types.CPointer(types.int64)

    def as_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    @intrinsic  # type: ignore[untyped-decorator]
    def memory(_context: Any, address: Any) -> Any:
        """A pointer to what has no type."""
        return types.voidptr(address), as_pointer

    @intrinsic  # type: ignore[untyped-decorator]
    def address(_context: Any, words: Any) -> Any:
        """The address of words."""
        return types.uint64(words), lambda _context, builder, _signature, arguments: builder.ptrtoint(
            arguments[0], ir.IntType(64)
        )

    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
    def room(_context: Any, count: Any) -> Any:
        """A pointer to words of the caller's stack."""

        def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            word = ir.IntType(64)
            first = cgutils.alloca_once(builder, word, size=word(count.literal_value))
            builder.store(word(0), first)
            return first

        return pointer(count), generate

    return Intrinsics(constant, catching, address, memory, room)


def call_and_report(
    context: Any, builder: Any, dispatcher: Any, signature: Any, data: Any, extents: Any, message: Any
) -> Any:
    """Code for a call whose exception becomes a message; its value is 0, or 1 when it raised."""
    from llvmlite import ir
    from numba.core import cgutils

    compiled = dispatcher.get_compile_result(signature)
    context.active_code_library.add_linking_library(compiled.library)
    status, _ = context.call_internal_no_propagate(builder, compiled.fndesc, signature, (data, extents))
    result = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
    with builder.if_then(status.is_error, likely=False):
        builder.store(ir.Constant(ir.IntType(32), 1), result)
        python = context.get_python_api(builder)
        lock = python.gil_ensure()
        context.call_conv.raise_error(builder, python, status)
        _report_raised(context, builder, python, message)
        python.gil_release(lock)
    return builder.load(result)


def _report_raised(context: Any, builder: Any, python: Any, message: Any) -> None:
    """Code that hands Python's current exception to `report`, and clears it."""
    from llvmlite import ir
    from numba.core import cgutils

    slots = [cgutils.alloca_once(builder, python.pyobj) for _ in range(3)]
    python.err_fetch(*slots)
    raised = [builder.load(slot) for slot in slots]
    module = python.import_module(context.insert_const_string(builder.module, report.__module__))
    function = python.object_getattr_string(module, report.__name__)
    address = python.long_from_ulonglong(builder.ptrtoint(message, ir.IntType(64)))
    done = python.call_function_objargs(function, (*raised[:2], address))
    for each in (module, function, address, done, *raised):
        python.decref(each)
    python.err_clear()
