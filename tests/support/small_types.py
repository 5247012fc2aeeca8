"""Arrays of the element types that are for arrays only: 8-bit floats, and elements that share bytes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from be_runtime.dtypes import DTYPES

SMALL = [row for row in DTYPES if row.is_for_arrays_only]
FLOAT8 = [row for row in SMALL if row.bits == 8]
PACKED = [row for row in SMALL if row.bits < 8]


def dtype_of(name: str) -> Any:
    """The numpy dtype; the test is skipped where this jax has no such one."""
    if not hasattr(jnp, name):
        pytest.skip(f"this jax has no {name}")
    return np.dtype(getattr(ml_dtypes, name))


def every_code(name: str, count: int = 256) -> Any:
    """An array that goes through all values of a type, told by their bits."""
    dtype = dtype_of(name)
    bits = next(row.bits for row in SMALL if row.name == name)
    codes = (np.arange(count) % 2**bits).astype(np.uint8)
    return codes.astype(dtype) if "int" in name else codes.view(dtype)


def told_apart(array: Any) -> Any:
    """A number for each element, by which NaNs and zeros of both signs differ too."""
    values = np.asarray(array)
    return (values.view(np.uint8) if "float" in str(values.dtype) else values.astype(np.int64)).tolist()
