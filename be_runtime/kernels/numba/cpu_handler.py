"""The XLA FFI handler of a host function, compiled by Numba.

An ordinary call, with exactly the arrays that the function was compiled for, goes straight to the function. Handler and
function are compiled together, so that properties of arrays that the kernel does not use are not read: extents are in
memory that XLA keeps for each call of a program. Every other call, a batch or a wrong one, goes to
``native/host_call.cc``, which runs it or reports the error.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.dtypes import DTYPES, DType
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.numba.source import check_dtypes

VALUE_RAISED = "be_value_raised"
"""Symbol in no library that code requires where it raises an exception with a value of run time."""

ADDRESSES = "numba.dynamic.globals"
"""Prefix of Numba's names for addresses in the process that compiled the code."""

UNUSED = "NRT_MemInfo_call_dtor"
"""Function that frees an allocated array; without allocations it is never called."""

_MEANINGS = (
    (re.escape(ADDRESSES), "it uses a C function by its address, or a global array of more than a megabyte",
     "pass the array as an input"),
    (r"numba_parallel|(numba_)?[gs]et_num_threads|(get_|numba_.*)thread|do_sched",
     "it runs in threads of Numba", "compile it without parallel=True"),
    (r"numba_(x|ez_|raw_)", "it calls linear algebra of SciPy", "write the loops, or use jnp for that part"),
    (r"NRT_MemInfo_(alloc\w*aligned|new_varsize)", "it allocates an array",
     "write into its outputs, or declare scratch[bytes] in the signature"),
    (r"_?Py|numba_(gil|unpickle|do_raise|runtime)", "it calls Python: it prints, or uses objects",
     "remove print and what needs objects"),
    (VALUE_RAISED, "it raises an exception with a value of run time",
     "raise it with a constant text, as in ValueError('text')"),
    (r"__svml|_ZGV", "it calls Intel's SVML", "uninstall icc_rt where it is built"),
    (r"numba_|NRT_(?!MemInfo_call_dtor)", "it calls a function of Numba's own library", "compute that in the kernel"),
)  # fmt: skip
"""Patterns of functions that a C library lacks, their meaning, and advice. The first pattern that fits counts."""

MESSAGE_SIZE = 1024
"""Size in bytes of the native handler's message, including the final zero."""

LACKING = tuple(row.name for row in DTYPES if row.is_narrow or row.is_for_arrays_only)
"""Dtypes that Numba lacks on the CPU."""

_RERAISED = "No active exception to reraise"

_DONE, _RAISED, _OTHER = range(3)
"""Outcomes of a direct call: done; the function raised; not an ordinary call, so not done."""

_ORDINARY = f"""
    message = room({MESSAGE_SIZE // 8})
    state = direct(guarded, frame, message)
    if state == {_DONE}:
        return 0
    if state == {_RAISED}:
        return failed(frame, kernel, address(message))
"""


def check_needs(kernel: str, needed: Sequence[str]) -> None:
    """Refuse a kernel whose code needs more than the C library.

    Raises
    ------
    BuildError
        The code needs more; the message has the first such function and its meaning.

    Examples
    --------
    >>> check_needs("f", ["sinf", "__svml_sinf8"])
    Traceback (most recent call last):
    be_runtime.errors.BuildError: the kernel f can't be built ahead of time: it calls Intel's SVML (__svml_sinf8)
    hint: uninstall icc_rt where it is built
    see docs/errors.md#be301, or run: python -m be_runtime explain BE301
    """
    for pattern, meaning, advice in _MEANINGS:
        name = next((each for each in needed if re.match(pattern, each)), None)
        if name is not None:
            raise refusal(kernel, f"{meaning} ({name})", advice)


def refusal(kernel: str, reason: str, *hints: str) -> BuildError:
    """Return the error for a kernel that works only in the process that compiled it."""
    return BuildError(f"the kernel {kernel} can't be built ahead of time: {reason}", hints=hints)


def report(kind: type[BaseException], value: object, address: int) -> None:
    """Write an exception's name and text to the native handler's message.

    Parameters
    ----------
    kind : type
        Type of the exception.
    value : object
        The exception, or the arguments to construct it.
    address : int
        Address of `MESSAGE_SIZE` bytes.
    """
    message = message_of(kind, value)
    ctypes.memmove(address, message, len(message))


def message_of(kind: type[BaseException], value: object) -> bytes:
    """Return the message of an exception, at most `MESSAGE_SIZE` bytes with the final zero."""
    text = _text(kind, value).encode("utf-8", "replace").replace(b"\0", b" ")
    return text[: MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode() + b"\0"


def _text(kind: type[BaseException], value: object) -> str:
    if not isinstance(value, BaseException):
        arguments = value if isinstance(value, tuple) else () if value is None else (value,)
        value = kind(*arguments)
    try:
        shown = str(value)
    except Exception as error:  # noqa: BLE001 - the author's second error would hide the first
        shown = f"(its text can't be made: {type(error).__name__})"
    return f"{kind.__name__}: {shown}" if shown else kind.__name__


class Parameter(NamedTuple):
    """One array of a function.

    Parameters
    ----------
    dtype : DType
    rank : int
        Number of dimensions.
    """

    dtype: DType
    rank: int

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(':' * self.rank)}]"


class Signature(NamedTuple):
    """The arrays of a function.

    Parameters
    ----------
    inputs, outputs : tuple of Parameter
        The inputs, which the function can't write to, and the outputs.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> str(Signature((Parameter(BY_NAME["float32"], 2),), (Parameter(BY_NAME["int8"], 0),)))
    '(float32[:,:]) -> (int8[])'
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    def __str__(self) -> str:
        return " -> ".join(f"({', '.join(map(str, side))})" for side in (self.inputs, self.outputs))


def signature_of(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], lacking: Sequence[str] = ()) -> Signature:
    """Make the signature for some arrays.

    Parameters
    ----------
    lacking : sequence of str
        Names of unsupported dtypes.

    Raises
    ------
    ArgumentError
        An array has an unsupported dtype.
    """
    check_dtypes(inputs, outputs, lacking)
    sides = (tuple(Parameter(spec.dtype, spec.ndim) for spec in side) for side in (inputs, outputs))
    return Signature(*sides)


def check_count(function: Callable[..., Any], name: str, signature: Signature, more: Sequence[str] = ()) -> None:
    """Check that a function takes the arrays of a signature, followed by the parameters in `more`.

    Raises
    ------
    ArgumentError
        The function takes another number of arguments.
    """
    parameters = inspect.signature(function)
    names = ", ".join(parameters.parameters)
    counts = len(signature.inputs), len(signature.outputs)
    try:
        parameters.bind(*range(sum(counts) + len(more)))
    except TypeError as error:
        order = ", then ".join(("the inputs of the call", "the outputs", *more))
        raise ArgumentError(
            f"{name}({names}) can't take {counts[0]} inputs and {counts[1]} outputs: {error}",
            hints=(f"its parameters are {order}",),
        ) from None


def raise_texts() -> None:
    """Let Numba compile ``raise`` to a constant text from now on; an exception without one requires `VALUE_RAISED`."""
    from numba.core.callconv import CPUCallConv

    CPUCallConv.set_static_user_exc = _set_text
    CPUCallConv.set_dynamic_user_exc = _mark


def report_text(_context: Any, builder: Any, status: Any, message: Any) -> None:
    """Generate code that copies the text of the exception to the message."""
    from llvmlite import ir
    from numba.core import cgutils

    with builder.if_else(status.is_user_exc) as (with_text, without):
        with with_text:
            raised = builder.load(status.excinfoptr)
            text, size = builder.extract_value(raised, 0), builder.extract_value(raised, 1)
            cgutils.raw_memcpy(builder, message, text, size, 1)
        with without:  # the only other error of code that calls no Python
            ended = message_of(StopIteration, None)
            size = ir.IntType(32)(len(ended))
            cgutils.raw_memcpy(builder, message, _constant(builder, ended), size, 1)


def _set_text(
    convention: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
) -> None:
    """Generate code that describes an exception by its text; it replaces Numba's function of these parameters."""
    del loc, func_name
    from llvmlite import ir
    from numba.core import cgutils
    from numba.core.callconv import excinfo_t

    text = message_of(RuntimeError, (_RERAISED,)) if exc is None else message_of(exc, exc_args)
    pointer, size, more, function, count = excinfo_t.elements
    parts = (_constant(builder, text).bitcast(pointer), size(len(text)), more(None), function(None), count(0))
    raised = cgutils.global_constant(builder, ".be.raised", ir.Constant(excinfo_t, parts))
    store = builder.store(raised, convention._get_excinfo_argument(builder.function))  # noqa: SLF001 - as Numba does
    store.set_metadata("numba_exception_output", builder.module.add_metadata([ir.IntType(1)(1)]))


def _mark(convention: Any, builder: Any, exc: Any, *_rest: Any, **_more: Any) -> None:
    """Generate code that requires `VALUE_RAISED`, in place of the text of a value of run time."""
    from llvmlite import ir
    from numba.core import cgutils

    kind = ir.FunctionType(ir.VoidType(), ())
    builder.call(cgutils.get_or_insert_function(builder.module, kind, VALUE_RAISED), ())
    _set_text(convention, builder, exc)


def _constant(builder: Any, data: bytes) -> Any:
    from llvmlite import ir
    from numba.core import cgutils

    return cgutils.global_constant(
        builder, ".be.text", ir.Constant(ir.ArrayType(ir.IntType(8), len(data)), bytearray(data))
    )


Reporter = Callable[[Any, Any, Any, Any], None]
"""Generator of code that writes a call's exception to a message, from Numba's context, its builder, the call's status
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
        ``room(count)`` is a pointer to `count` words of the caller's stack, a literal number; the first word is 0.
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
    """Generate code for a call whose exception becomes a message; the value is 0, or 1 if the call raised."""
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
        Function of the call frame and the kernel that handles any call.
    failed : callable in compiled code
        Function of the call frame, the kernel and a message that makes an error.
    layout : HandlerLayout
    """

    kernel: int
    call: Any
    failed: Any
    layout: HandlerLayout


def at_addresses(kernel: int, call: int, failed: int, layout: HandlerLayout) -> Native:
    """Make functions and data of this process from their addresses."""
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
    """Define ``direct(guarded, frame, message)`` for compiled code, which makes an ordinary call; return it."""
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
    """Generator of LLVM instructions that read a call frame, which saves a tenth of a second of Numba's type inference.

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
        """Generate an ordinary call and return its outcome: no query, no batch, and a result that is not empty.

        Parameters
        ----------
        signature : Signature
        call : callable
            Function from pointers to addresses and to extents to the instructions of the call; their value is the
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
                some = [
                    self._all([builder.icmp_signed("!=", value, self._word(0)) for value in each])
                    for each in extents[len(arguments) :]
                ]
                with builder.if_then(functools.reduce(builder.or_, some), likely=True):
                    data = self._row([self._at(buffer, layout.data) for buffer in buffers])
                    builder.store(call(data, self._row([value for each in extents for value in each])), state)
        return builder.load(state)

    def _buffers(self, index: int, count: int) -> list[Any]:
        """Return pointers to the buffers from the frame's array of addresses."""
        row = self._words(self._at(self._whole, index))
        return [self._words(self._at(row, position)) for position in range(count)]

    def _fits(self, buffer: Any, parameter: Parameter) -> list[Any]:
        """Generate conditions that a buffer has the parameter's dtype, in the lower half of a word, and its rank."""
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

    def _all(self, conditions: Sequence[Any]) -> Any:
        from llvmlite import ir

        return functools.reduce(self._builder.and_, conditions, ir.IntType(1)(1))

    def _where(self, conditions: Sequence[Any]) -> Any:
        """Open a block that runs if all conditions hold."""
        return self._builder.if_then(self._all(conditions), likely=True)
