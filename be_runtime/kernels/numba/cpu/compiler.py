"""Compilation of a Numba kernel to a C function that a native handler can call.

The C function takes the addresses of the buffers and their extents, makes arrays over them, read-only for inputs, and
calls the kernel. No exception leaves it: the exception's name and text are written to the handler's message, and the
function returns 1.

It uses Numba's public ``cfunc`` and ``carray``, with the instructions of `intrinsics`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from be_runtime.errors import BuildError
from be_runtime.kernels.numba.cpu.compiled import HostFunction
from be_runtime.kernels.numba.cpu.intrinsics import Intrinsics, intrinsics
from be_runtime.kernels.numba.cpu.signature import Signature
from be_runtime.kernels.numba.numba_hints import hints
from be_runtime.kernels.numba.numba_import import import_error

_PLACE = re.compile(r"^During: typing of .* at (\S.*) \((\d+)\)$", re.MULTILINE)
"""The part of Numba's message that names the line it can't type."""

_EXCLUSIVE_LAYER = "workqueue"
"""Numba's threading layer that aborts the process when two threads enter it at once."""


def import_numba() -> Any:
    """Import Numba.

    Raises
    ------
    ImportError
        It is not installed, or doesn't work with other installed packages.
    """
    try:
        import numba
    except (ImportError, AttributeError) as error:
        raise import_error("numba_kernel", "numba", error) from error
    return numba


def check_kernel(kernel: object) -> Any:
    """Check that the argument is a CPU dispatcher of Numba.

    Raises
    ------
    ImportError
        See `import_numba`.
    TypeError
        It is something else.
    """
    import_numba()
    from numba.core.registry import CPUDispatcher

    if not isinstance(kernel, CPUDispatcher):
        kind = type(kernel)
        raise TypeError(
            f"kernel must be a function decorated with @numba.njit, not {kernel!r}, which is a {kind.__qualname__}"
        )
    if kernel.targetoptions.get("forceobj"):
        raise TypeError(f"kernel {kernel.py_func.__name__} is compiled in object mode, which needs the interpreter")
    return kernel


def versions() -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    import llvmlite

    return (import_numba().__version__, llvmlite.__version__)


def compile_entry(kernel: Any, signature: Signature, made: Intrinsics | None = None) -> HostFunction:
    """Compile a kernel for a signature.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    made : Intrinsics, optional
        Instructions for the C function; by default those that report exceptions by Python.

    Raises
    ------
    BuildError
        Numba refuses the kernel; ``output`` is its whole message.
    """
    types = import_numba().types
    name = kernel.py_func.__name__
    usable = _open(kernel)
    try:
        # The kernel is compiled by itself first, so that Numba's messages are only about the kernel.
        usable.compile(arrays := _array_types(signature))
        returned = usable.overloads[arrays].signature.return_type
        if returned == types.none:
            entry, guarded = _compile_c_function(usable, signature, made or intrinsics())
    except Exception as error:
        # Numba's own errors, and any others that its passes raise because of the author's code.
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
    return HostFunction(entry.address, entry, exclusive=_is_exclusive(usable), guarded=guarded)


def _array_types(signature: Signature) -> tuple[Any, ...]:
    """Return Numba's types of the kernel's arrays, read-only for inputs."""
    from numba import types
    from numba.np.numpy_support import from_dtype

    return tuple(
        types.Array(from_dtype(np.dtype(parameter.dtype.name)), parameter.rank, "C", readonly=readonly)
        for side, readonly in ((signature.inputs, True), (signature.outputs, False))
        for parameter in side
    )


def _gist(text: str) -> str:
    """Extract the reason from Numba's message, and the kernel's line that it names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if "Error:" in line or line.startswith(("Unknown", "No conversion", "Cannot"))]
    reasons = marked[-1:] or [line for line in lines if not line.startswith("Failed in ")] or ["no reason given"]
    place = _PLACE.search(text)
    return reasons[0] + (f" ({place[1]}:{place[2]})" if place else "")


def _open(kernel: Any) -> Any:
    """Return the kernel without the author's list of signatures, as ours has read-only arrays."""
    if getattr(kernel, "_can_compile", True):
        return kernel
    import numba

    options = {name: value for name, value in kernel.targetoptions.items() if name != "nopython"}
    return numba.njit(**options)(kernel.py_func)


def _compile_c_function(kernel: Any, signature: Signature, made: Intrinsics) -> tuple[Any, Any]:
    """Compile the C function, which no exception leaves, and the function it calls, which makes the arrays."""
    import numba
    from numba import types

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
    namespace: dict[str, Any] = {"kernel": kernel, "carray": numba.carray, **made._asdict(), **dtypes}
    exec(source, namespace)  # noqa: S102 - made of numbers and of names of ours
    guarded = namespace["guarded"] = numba.njit(namespace["call"])
    pointer = types.CPointer(types.int64)
    c_type = types.int32(pointer, pointer, pointer)
    return numba.cfunc(c_type)(namespace["entry"]), guarded


def _is_exclusive(kernel: Any) -> bool:
    """Return whether calls of a compiled kernel must wait for each other."""
    if not kernel.targetoptions.get("parallel"):
        return False
    import numba

    try:
        layer: str = numba.threading_layer()
    except ValueError:
        return False  # nothing in the kernel runs in parallel
    return layer == _EXCLUSIVE_LAYER
