"""The XLA FFI handler of a host function, compiled by Numba.

An ordinary call, with exactly the arrays that the function was compiled for, goes straight to the function. Handler and
function are compiled together, so the handler reads only those extents that the kernel uses, from memory that XLA keeps
for each call of a program. All other calls, batches or invalid calls, go to ``native/host_call.cc``, which runs the
call or reports the error.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.callconv import CPUCallConv, excinfo_t
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from be_runtime.errors import BuildError
from be_runtime.kernels.numba import cpu
from be_runtime.kernels.numba.source import hints

_POINTER = types.CPointer(types.int64)

_PLACE = re.compile(r"^During: typing of .* at (\S.*) \((\d+)\)$", re.MULTILINE)
"""The line of the kernel in Numba's message."""

_EXCLUSIVE_LAYER = "workqueue"
"""Threading layer of Numba that aborts the process if two threads enter it at once."""

_RERAISED = "No active exception to reraise"

_EXTENSION, _ARG_COUNT, _ARGS, _RET_COUNT, _RETS = 1, 7, 9, 12, 14
"""Numbers of the 64-bit words of XLA's call frame that a handler reads; ``native/host_call.cc`` compares them."""

_DTYPE, _DATA, _RANK, _DIMS = 2, 3, 4, 5
"""Numbers of the words of a buffer."""

_DONE, _RAISED, _OTHER = range(3)
"""Outcomes of a direct call: done; the function raised; not an ordinary call, so not done."""

_ORDINARY = f"""
    message = room({cpu.MESSAGE_SIZE // 8})
    state = direct(guarded, frame, message)
    if state == {_DONE}:
        return 0
    if state == {_RAISED}:
        return failed(frame, kernel, address(message))
"""


def raise_texts() -> None:
    """Make Numba compile ``raise`` to a constant text from now on; other exceptions require `VALUE_RAISED`."""
    CPUCallConv.set_static_user_exc = _set_text
    CPUCallConv.set_dynamic_user_exc = _mark


def report_text(_context: Any, builder: Any, status: Any, message: Any) -> None:
    """Generate code that copies the text of the exception to the message."""
    with builder.if_else(status.is_user_exc) as (with_text, without):
        with with_text:
            raised = builder.load(status.excinfoptr)
            text, size = builder.extract_value(raised, 0), builder.extract_value(raised, 1)
            cgutils.raw_memcpy(builder, message, text, size, 1)
        with without:  # the only other error of code that does not call Python
            ended = cpu.message_of(StopIteration, None)
            size = ir.IntType(32)(len(ended))
            cgutils.raw_memcpy(builder, message, _constant(builder, ended), size, 1)


def _set_text(
    convention: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
) -> None:
    """Generate code that describes an exception by its text; it replaces Numba's function of these parameters."""
    del loc, func_name
    text = cpu.message_of(RuntimeError, (_RERAISED,)) if exc is None else cpu.message_of(exc, exc_args)
    pointer, size, more, function, count = excinfo_t.elements
    parts = (_constant(builder, text).bitcast(pointer), size(len(text)), more(None), function(None), count(0))
    raised = cgutils.global_constant(builder, ".be.raised", ir.Constant(excinfo_t, parts))
    store = builder.store(raised, convention._get_excinfo_argument(builder.function))  # noqa: SLF001 - as Numba does
    store.set_metadata("numba_exception_output", builder.module.add_metadata([ir.IntType(1)(1)]))


def _mark(convention: Any, builder: Any, exc: Any, *_rest: Any, **_more: Any) -> None:
    """Generate code that requires `VALUE_RAISED`, in place of the text of a value of run time."""
    kind = ir.FunctionType(ir.VoidType(), ())
    builder.call(cgutils.get_or_insert_function(builder.module, kind, cpu.VALUE_RAISED), ())
    _set_text(convention, builder, exc)


def _constant(builder: Any, data: bytes) -> Any:
    return cgutils.global_constant(builder, ".be.text", cgutils.make_bytearray(data))


Reporter = Callable[[Any, Any, Any, Any], None]
"""Generator of code that writes a call's exception to a message, from Numba's context, its builder, the call's status
and the message."""


def report_by_python(context: Any, builder: Any, status: Any, message: Any) -> None:
    """Generate code that makes Python's exception, passes it to `report`, and clears it."""
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    context.call_conv.raise_error(builder, python, status)
    slots = [cgutils.alloca_once(builder, python.pyobj) for _ in range(3)]
    python.err_fetch(*slots)
    raised = [builder.load(slot) for slot in slots]
    module = python.import_module(context.insert_const_string(builder.module, cpu.report.__module__))
    function = python.object_getattr_string(module, cpu.report.__name__)
    address = python.long_from_ulonglong(builder.ptrtoint(message, ir.IntType(64)))
    done = python.call_function_objargs(function, (*raised[:2], address))
    for each in (module, function, address, done, *raised):
        python.decref(each)
    python.err_clear()
    python.gil_release(lock)


@intrinsic  # type: ignore[untyped-decorator]
def constant(_context: Any, array: Any) -> Any:
    """Make a read-only view of an array."""
    return array.copy(readonly=True)(array), lambda _context, _builder, _signature, arguments: arguments[0]


@intrinsic  # type: ignore[untyped-decorator]
def memory(_context: Any, address: Any) -> Any:
    """Return an untyped pointer."""
    return types.voidptr(address), lambda context, builder, signature, arguments: builder.inttoptr(
        arguments[0], context.get_value_type(signature.return_type)
    )


@intrinsic  # type: ignore[untyped-decorator]
def address(_context: Any, words: Any) -> Any:
    """Return the address of words."""
    return types.uint64(words), lambda _context, builder, _signature, arguments: builder.ptrtoint(
        arguments[0], ir.IntType(64)
    )


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def room(_context: Any, count: Any) -> Any:
    """Return a pointer to `count` words of the caller's stack, a literal number; the first word is 0."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        word = ir.IntType(64)
        first = cgutils.alloca_once(builder, word, size=word(count.literal_value))
        builder.store(word(0), first)
        return first

    return _POINTER(count), generate


@functools.cache
def catching(reporter: Reporter) -> Any:
    """Return ``catching(function, data, extents, message)`` for compiled code.

    It calls ``function(data, extents)``, compiled, and returns 0, or 1 if the function raised. The exception is then
    reported to the message.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def catching(typing_context: Any, function: Any, data: Any, extents: Any, message: Any) -> Any:
        inner = function.get_call_type(typing_context, (data, extents), {})

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            _, data, extents, message = arguments
            return call_and_report(context, builder, function.dispatcher, inner, data, extents, message, reporter)

        return types.int32(function, data, extents, message), generate

    return catching


def call_and_report(
    context: Any, builder: Any, code: Any, signature: Any, data: Any, extents: Any, message: Any, reporter: Reporter
) -> Any:
    """Generate code for a call whose exception becomes a message; the value is 0, or 1 if the call raised."""
    compiled = code.get_compile_result(signature)
    context.active_code_library.add_linking_library(compiled.library)
    status, _ = context.call_internal_no_propagate(builder, compiled.fndesc, signature, (data, extents))
    result = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
    with builder.if_then(status.is_error, likely=False):
        builder.store(ir.Constant(ir.IntType(32), 1), result)
        reporter(context, builder, status, message)
    return builder.load(result)


def compile_entry(kernel: Any, signature: cpu.Signature, reporter: Reporter = report_by_python) -> cpu.HostFunction:
    """Compile a kernel for a signature.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    reporter : callable
        Generator of the report of an exception.

    Raises
    ------
    BuildError
        Numba can't compile the kernel. ``output`` is Numba's whole message.
    """
    name = kernel.py_func.__name__
    usable = kernel
    if not getattr(kernel, "_can_compile", True):  # the author's list of signatures lacks ours with read-only arrays
        options = {option: value for option, value in kernel.targetoptions.items() if option != "nopython"}
        usable = numba.njit(**options)(kernel.py_func)
    try:
        # First, compile only the kernel, so that Numba's messages are about the kernel.
        usable.compile(arrays := _array_types(signature))
        returned = usable.overloads[arrays].signature.return_type
        if returned == types.none:
            entry, guarded = _compile_c_function(usable, signature, reporter)
    except Exception as error:
        # Numba raises its own errors, and its passes raise any others because of the author's code.
        text = str(error)
        inputs, outputs = ([parameter.rank for parameter in side] for side in (signature.inputs, signature.outputs))
        raise BuildError(
            f"Numba can't compile the kernel {name} for {signature}: {_gist(text)}",
            output=text,
            hints=tuple(hints(kernel.py_func, inputs, outputs, text)[:1]),
        ) from error
    if returned != types.none:
        raise BuildError(
            f"the kernel {name} returns {returned}: a kernel writes its results to its outputs and returns nothing"
        )
    return cpu.HostFunction(entry.address, entry, exclusive=_is_exclusive(usable), guarded=guarded)


def _array_types(signature: cpu.Signature) -> tuple[Any, ...]:
    """Return Numba's types of the kernel's arrays, read-only for inputs."""
    return tuple(
        types.Array(from_dtype(np.dtype(parameter.dtype.name)), parameter.rank, "C", readonly=readonly)
        for side, readonly in ((signature.inputs, True), (signature.outputs, False))
        for parameter in side
    )


def _gist(text: str) -> str:
    """Extract the reason and the kernel's line from Numba's message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if "Error:" in line or line.startswith(("Unknown", "No conversion", "Cannot"))]
    reasons = marked[-1:] or [line for line in lines if not line.startswith("Failed in ")] or ["no reason given"]
    place = _PLACE.search(text)
    return reasons[0] + (f" ({place[1]}:{place[2]})" if place else "")


def _compile_c_function(kernel: Any, signature: cpu.Signature, reporter: Reporter) -> tuple[Any, Any]:
    """Compile the C function, which catches all exceptions, and the function that makes the arrays for it."""
    views, dtypes, at = [], {}, 0
    for index, parameter in enumerate((*signature.inputs, *signature.outputs)):
        extents = "".join(f"extents[{at + axis}], " for axis in range(parameter.rank))
        view = f"carray(memory(data[{index}]), ({extents}), dtype{index})"
        views.append(f"constant({view})" if index < len(signature.inputs) else view)
        dtypes[f"dtype{index}"] = np.dtype(parameter.dtype.name).type
        at += parameter.rank
    source = (
        f"def call(data, extents):\n    return kernel({', '.join(views)})\n"
        "def entry(data, extents, message):\n    return catching(guarded, data, extents, message)\n"
    )
    made = {"constant": constant, "memory": memory, "catching": catching(reporter)}
    namespace: dict[str, Any] = {"kernel": kernel, "carray": numba.carray, **made, **dtypes}
    exec(source, namespace)  # noqa: S102 - the text has only numbers and our names
    guarded = namespace["guarded"] = numba.njit(namespace["call"])
    return numba.cfunc(types.int32(_POINTER, _POINTER, _POINTER))(namespace["entry"]), guarded


def _is_exclusive(kernel: Any) -> bool:
    """Return whether calls of a compiled kernel must wait for each other."""
    with contextlib.suppress(ValueError):  # nothing in the kernel runs in parallel
        return bool(kernel.targetoptions.get("parallel")) and numba.threading_layer() == _EXCLUSIVE_LAYER
    return False


class Native(NamedTuple):
    """The native functions and data of a handler.

    Parameters
    ----------
    kernel : int
        Address of the native side's description of the function.
    call : callable in compiled code
        Function of the call frame and the kernel that handles any call.
    failed : callable in compiled code
        Function of the call frame, the kernel and a message that makes an error.
    """

    kernel: int
    call: Any
    failed: Any


def in_library(library: ctypes.CDLL, kernel: int) -> Native:
    """Return the functions and data of a loaded library."""
    word = ctypes.c_uint64
    call = ctypes.cast(library.be_host_call, ctypes.CFUNCTYPE(word, word, word))
    return Native(kernel, call, ctypes.cast(library.be_host_failed, ctypes.CFUNCTYPE(word, word, word, word)))


def compile_handler(
    native: Native, signature: cpu.Signature, guarded: Any | None, reporter: Reporter = report_by_python
) -> Any:
    """Compile a handler, whose ``address`` XLA can call.

    Parameters
    ----------
    native : Native
    signature : Signature
    guarded : compiled function, optional
        Function of pointers to the addresses and to the extents of all buffers, one after the other. Without it, the
        native side makes every call.
    reporter : callable
    """
    made = {"address": address, "room": room, "direct": _direct(signature, reporter)}
    namespace: dict[str, Any] = {**native._asdict(), **made, "guarded": guarded}
    ordinary = "" if guarded is None else _ORDINARY
    exec(f"def handle(frame):{ordinary}\n    return call(frame, kernel)", namespace)  # noqa: S102 - a text of ours
    return numba.cfunc(types.uint64(types.uint64))(namespace["handle"])


def _direct(signature: cpu.Signature, reporter: Reporter) -> Any:
    """Define ``direct(guarded, frame, message)`` for compiled code, which makes an ordinary call; return it."""

    @intrinsic  # type: ignore[untyped-decorator]
    def direct(typing_context: Any, guarded: Any, frame: Any, message: Any) -> Any:
        inner = guarded.get_call_type(typing_context, (_POINTER, _POINTER), {})

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            def call(data: Any, extents: Any) -> Any:
                return call_and_report(
                    context, builder, guarded.dispatcher, inner, data, extents, arguments[2], reporter
                )

            return _Frame(builder, arguments[1]).ordinary_call(signature, call)

        return types.int32(guarded, frame, message), generate

    return direct


class _Frame:
    """Generator of LLVM instructions that read a call frame, which saves 0.1 s of Numba's type inference.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
    address : llvmlite.ir.Value
        Address of the frame.
    """

    def __init__(self, builder: Any, address: Any) -> None:
        self._builder = builder
        self._word = ir.IntType(64)
        self._whole = self._words(address)

    def ordinary_call(self, signature: cpu.Signature, call: Callable[[Any, Any], Any]) -> Any:
        """Generate an ordinary call and return its outcome: no query, no batch, and a result that is not empty.

        Parameters
        ----------
        signature : Signature
        call : callable
            Function from pointers to addresses and to extents to the instructions of the call; their value is the
            status.
        """
        builder, arguments, results = self._builder, signature.inputs, signature.outputs
        state = cgutils.alloca_once_value(builder, ir.IntType(32)(_OTHER))
        counts = {_EXTENSION: 0, _ARG_COUNT: len(arguments), _RET_COUNT: len(results)}
        with self._where([self._is(self._whole, index, count) for index, count in counts.items()]):
            buffers = [*self._buffers(_ARGS, len(arguments)), *self._buffers(_RETS, len(results))]
            parameters = [*arguments, *results]
            with self._where([fit for pair in zip(buffers, parameters, strict=True) for fit in self._fits(*pair)]):
                dims = [self._words(self._at(buffer, _DIMS)) for buffer in buffers]
                pairs = zip(dims, parameters, strict=True)
                extents = [[self._at(of, axis) for axis in range(each.rank)] for of, each in pairs]
                some = [
                    self._all([builder.icmp_signed("!=", value, self._word(0)) for value in each])
                    for each in extents[len(arguments) :]
                ]
                with builder.if_then(functools.reduce(builder.or_, some), likely=True):
                    data = self._row([self._at(buffer, _DATA) for buffer in buffers])
                    builder.store(call(data, self._row([value for each in extents for value in each])), state)
        return builder.load(state)

    def _buffers(self, index: int, count: int) -> list[Any]:
        """Return pointers to the buffers from the frame's array of addresses."""
        row = self._words(self._at(self._whole, index))
        return [self._words(self._at(row, position)) for position in range(count)]

    def _fits(self, buffer: Any, parameter: cpu.Parameter) -> list[Any]:
        """Generate conditions that a buffer has the parameter's dtype, in the lower half of a word, and its rank."""
        dtype = self._builder.trunc(self._at(buffer, _DTYPE), ir.IntType(32))
        is_one = self._builder.icmp_signed("==", dtype, dtype.type(parameter.dtype.xla_code))
        return [is_one, self._is(buffer, _RANK, parameter.rank)]

    def _row(self, values: Sequence[Any]) -> Any:
        """Store values one after the other on the stack."""
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

    def _all(self, conditions: Sequence[Any]) -> Any:
        return functools.reduce(self._builder.and_, conditions, ir.IntType(1)(1))

    def _where(self, conditions: Sequence[Any]) -> Any:
        """Open a block that runs if all conditions hold."""
        return self._builder.if_then(self._all(conditions), likely=True)
