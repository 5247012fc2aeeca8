"""Signatures that host functions are compiled for: the dtypes and ranks of the arrays of a call. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.dtypes import DTYPES, DType
from be_runtime.errors import ArgumentError
from be_runtime.kernels.numba.numba_source import check_dtypes
from be_runtime.xla.arrays import ArraySpec

LACKING = tuple(row.name for row in DTYPES if row.is_narrow or row.is_for_arrays_only)
"""Dtypes that Numba doesn't have on the CPU."""


class Parameter(NamedTuple):
    """One array of a function.

    Parameters
    ----------
    dtype : DType
    rank : int
        Number of its dimensions.
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
        Arrays of the function: the inputs, which it can't write to, followed by the outputs.

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
        An array has such a dtype.
    """
    check_dtypes(inputs, outputs, lacking)
    sides = (tuple(Parameter(spec.dtype, spec.ndim) for spec in side) for side in (inputs, outputs))
    return Signature(*sides)


def check_count(function: Callable[..., Any], name: str, signature: Signature, more: Sequence[str] = ()) -> None:
    """Check that a function takes the arrays of a signature, followed by the parameters in `more`.

    Raises
    ------
    ArgumentError
        It takes another number of arguments.
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
