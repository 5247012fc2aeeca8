"""Exceptions of a Numba kernel as texts in its machine code, so that reporting one takes neither Python nor Numba.

It changes Numba's calling convention for the whole process, so only the process that makes an object uses it, see
`baseline_object`. The text takes the place of the pickled exception in Numba's description of what was raised.
"""

from __future__ import annotations

from typing import Any

from be_runtime.kernels.numba.cpu.needed_functions import VALUE_RAISED
from be_runtime.kernels.numba.cpu.report import message_of

_RERAISED = "No active exception to reraise"


def raise_texts() -> None:
    """Let Numba compile ``raise`` to a text from now on; what has no text before it runs needs `VALUE_RAISED`."""
    from numba.core.callconv import CPUCallConv

    CPUCallConv.set_static_user_exc = _set_text
    CPUCallConv.set_dynamic_user_exc = _mark


def report_text(_context: Any, builder: Any, status: Any, message: Any) -> None:
    """Generate code that copies the text of what was raised to the message."""
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
    """Generate code that describes an exception by its text, in place of Numba's function of these parameters."""
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
    """Generate code that asks for a function that nothing has, in place of the text of a value of run time."""
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
