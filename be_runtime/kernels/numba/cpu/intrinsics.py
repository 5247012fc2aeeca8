"""Instructions that compiled code needs and for which Numba has no function.

`catching` uses the objects that Numba passes to every intrinsic in the same way as Numba's own ``cfunc``; no public
function gives compiled code the name of an exception.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from be_runtime.kernels.numba.cpu.report import report

Reporter = Callable[[Any, Any, Any, Any], None]
"""Generator of code that writes what a call raised to a message, from Numba's context, its builder, the call's status
and the message."""


class Intrinsics(NamedTuple):
    """Functions for compiled code.

    Parameters
    ----------
    constant : callable
        ``constant(array)`` makes a read-only view of an array.
    catching : callable
        ``catching(function, data, extents, message)`` calls ``function(data, extents)``, compiled. It returns 0, or 1
        if the function raised; the exception is then reported to the message.
    address : callable
        ``address(pointer)`` is the address of words.
    memory : callable
        ``memory(address)`` is an untyped pointer.
    room : callable
        ``room(count)`` is a pointer to `count` words of the caller's stack, a literal number; the first is 0.
    reporter : callable
        Generator of the report.
    """

    constant: Any
    catching: Any
    address: Any
    memory: Any
    room: Any
    reporter: Reporter


def report_by_python(context: Any, builder: Any, status: Any, message: Any) -> None:
    """Generate code that makes Python's exception and passes it to `report`."""
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    context.call_conv.raise_error(builder, python, status)
    _report_raised(context, builder, python, message)
    python.gil_release(lock)


@functools.cache
def intrinsics(reporter: Reporter = report_by_python) -> Intrinsics:
    """Make the functions at first use, since they need Numba."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def constant(_context: Any, array: Any) -> Any:
        """Make a read-only view of an array."""
        return array.copy(readonly=True)(array), lambda _context, _builder, _signature, arguments: arguments[0]

    @intrinsic  # type: ignore[untyped-decorator]
    def catching(typing_context: Any, function: Any, data: Any, extents: Any, message: Any) -> Any:
        """Call a compiled function; return 0, or 1 if it raised, with the exception reported to the message."""
        inner = function.get_call_type(typing_context, (data, extents), {})

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            _, data, extents, message = arguments
            return call_and_report(context, builder, function.dispatcher, inner, data, extents, message, reporter)

        return types.int32(function, data, extents, message), generate

    pointer = types.CPointer(types.int64)

    def as_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    @intrinsic  # type: ignore[untyped-decorator]
    def memory(_context: Any, address: Any) -> Any:
        """Return an untyped pointer."""
        return types.voidptr(address), as_pointer

    @intrinsic  # type: ignore[untyped-decorator]
    def address(_context: Any, words: Any) -> Any:
        """Return the address of words."""
        return types.uint64(words), lambda _context, builder, _signature, arguments: builder.ptrtoint(
            arguments[0], ir.IntType(64)
        )

    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
    def room(_context: Any, count: Any) -> Any:
        """Return a pointer to words of the caller's stack."""

        def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            word = ir.IntType(64)
            first = cgutils.alloca_once(builder, word, size=word(count.literal_value))
            builder.store(word(0), first)
            return first

        return pointer(count), generate

    return Intrinsics(constant, catching, address, memory, room, reporter)


def call_and_report(
    context: Any,
    builder: Any,
    dispatcher: Any,
    signature: Any,
    data: Any,
    extents: Any,
    message: Any,
    reporter: Reporter,
) -> Any:
    """Generate code for a call whose exception becomes a message; its value is 0, or 1 if it raised."""
    from llvmlite import ir
    from numba.core import cgutils

    compiled = dispatcher.get_compile_result(signature)
    context.active_code_library.add_linking_library(compiled.library)
    status, _ = context.call_internal_no_propagate(builder, compiled.fndesc, signature, (data, extents))
    result = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
    with builder.if_then(status.is_error, likely=False):
        builder.store(ir.Constant(ir.IntType(32), 1), result)
        reporter(context, builder, status, message)
    return builder.load(result)


def _report_raised(context: Any, builder: Any, python: Any, message: Any) -> None:
    """Generate code that passes Python's current exception to `report`, and clears it."""
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
