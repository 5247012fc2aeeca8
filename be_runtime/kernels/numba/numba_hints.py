"""Hints for a kernel that Numba refuses, on GPU or CPU, from Numba's message and the kernel's bytecode. Pure."""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from be_runtime.kernels.numba.numba_source import first_name

_IN_PLACE = "write to an output, and use input_output_aliases to work in place"
_ABOUT_WRITES = ("setitem(readonly", "Cannot modify readonly", "output that is read-only")
_ABOUT_NUMBERS = (", 0d, ", "<ufunc '")
_ABOUT_OPERATORS = "'NoneType' object has no attribute 'args'"
"""Numba's only message for an operator such as ``+=`` with a read-only target or with unsupported operands."""


def hints(
    function: Callable[..., Any], input_ndims: Sequence[int], output_ndims: Sequence[int], text: str
) -> list[str]:
    """Return hints, the most likely first.

    Parameters
    ----------
    function : callable
        The kernel's Python function, whose parameters are the inputs, then the outputs.
    input_ndims, output_ndims : sequence of int
        Number of dimensions of each array.
    text : str
        Numba's message.

    Examples
    --------
    >>> def scale(a, x, out):
    ...     a += 1
    >>> hints(scale, [0, 1], [1], "int(readonly array(float32, 0d, C))")
    ['a is a 0-dimensional array, as all numbers are: its value is a[()]']
    >>> hints(scale, [0, 1], [1], "'NoneType' object has no attribute 'args'")
    ['a += ... writes the input a: write to an output, and use input_output_aliases to work in place']
    """
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    found = [f"an input can't be written: {_IN_PLACE}"] if any(mark in text for mark in _ABOUT_WRITES) else []
    if _ABOUT_OPERATORS in text:
        found += _about_operators(augmented(function), names[: len(input_ndims)], names[len(input_ndims) :])
    if any(mark in text for mark in _ABOUT_NUMBERS):
        ndims = zip(names, (*input_ndims, *output_ndims), strict=False)
        numbers = [name for name, ndim in ndims if ndim == 0]
        found += [f"{name} is a 0-dimensional array, as all numbers are: its value is {name}[()]" for name in numbers]
    return found


def _about_operators(targets: dict[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Return hints for operators: an input as the target is the reason; other targets may be parts of an input."""
    written = [name for name in inputs if name in targets]
    if written:
        return [f"{name} {targets[name]} ... writes the input {name}: {_IN_PLACE}" for name in written]
    if targets and set(targets) <= set(outputs):
        return [f"Numba can't do {name} {operator} ... with this operand" for name, operator in targets.items()]
    return [f"+= and similar operators fail on an input and on a part of one: {_IN_PLACE}"]


def augmented(function: Callable[..., Any]) -> dict[str, str]:
    """Map the local names that a function assigns to by an operator such as ``+=`` to the operators.

    Examples
    --------
    >>> def kernel(x, out):
    ...     x -= 1
    ...     out[0] += x[0]
    >>> augmented(kernel)
    {'x': '-='}
    """
    return {
        first_name(stored): operation.argrepr
        for operation, stored in itertools.pairwise(dis.get_instructions(function))
        if operation.opname == "BINARY_OP"
        and operation.argrepr.endswith("=")
        and stored.opname.startswith("STORE_FAST")
    }
