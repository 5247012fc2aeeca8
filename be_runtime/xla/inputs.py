"""Conversion of the inputs of a call to JAX arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from be_runtime.errors import ArgumentError
from be_runtime.xla import jax_port


def as_arrays(arguments: Sequence[Any], name: str) -> list[Any]:
    """Convert the inputs of a call to JAX arrays.

    Raises
    ------
    ArgumentError
        An input is not an array; the message has the function's `name`.
    """
    arrays = []
    for index, argument in enumerate(arguments):
        try:
            arrays.append(jax_port.as_array(argument))
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{name}: input {index} is {_short(argument)}, which is not an array",
                hints=("inputs are JAX or NumPy arrays, or numbers",),
            ) from None
    return arrays


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
