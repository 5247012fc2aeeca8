"""Attributes of a call as hashable values. Pure.

XLA carries numbers, texts, arrays of numbers and dictionaries of those. Two values are equal only if their bits are,
since programs are compiled for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """A number, or an array of one dimension, by its bits.

    Parameters
    ----------
    dtype : str
        numpy's name of the type in which XLA carries it.
    data : bytes
    is_array : bool
    """

    dtype: str
    data: bytes
    is_array: bool = False


class Fields(NamedTuple):
    """A dictionary."""

    items: tuple[tuple[str, Value], ...]


Value = str | Numbers | Fields


def as_jax(value: Value) -> Any:
    """Convert an attribute to what ``jax.ffi`` takes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Fields):
        return {name: as_jax(each) for name, each in value.items}
    import numpy as np

    array = np.frombuffer(value.data, value.dtype)
    return array if value.is_array else array[0]
