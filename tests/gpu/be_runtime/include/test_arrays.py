"""Every dtype, rank and number of arrays reaches a kernel and comes back."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import ATTR_TYPES
from tests.support.cuda import call, source
from tests.support.jax_names import enable_x64

EXTENTS = (2, 1, 3, 1, 2, 2, 1, 3)
SHAPES = [EXTENTS[:rank] for rank in range(9)]
EMPTY = [(0,), (3, 0), (0, 5, 2), (2, 0, 3, 4)]
CASES = [
    *((dtype, shape) for dtype in ATTR_TYPES for shape in ((1,), (1000,))),
    *(("float32", shape) for shape in SHAPES),
    *((dtype, shape) for dtype in ("float32", "bool", "complex128") for shape in EMPTY),
]


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cuda_inline("arrays", source("elementwise"))


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def some_values(shape: tuple[int, ...], dtype: str) -> Any:
    """Values whose double every dtype can hold, negative and fractional where it has such."""
    kind = jnp.dtype(dtype)
    values: Any = np.arange(math.prod(shape)).reshape(shape) % 50
    if jnp.issubdtype(kind, jnp.signedinteger):
        values = values - 25
    elif jnp.issubdtype(kind, jnp.inexact):
        values = values / 4 - 6
    if jnp.issubdtype(kind, jnp.complexfloating):
        values = values + 1j * (values % 7)
    return (values % 3 == 0 if kind == np.bool_ else values).astype(kind)


@pytest.mark.parametrize(("dtype", "shape"), CASES, ids=str)
def test_every_dtype_and_rank_is_computed_with(dtype: str, shape: tuple[int, ...]):
    x = some_values(shape, dtype)
    result = call("arrays.twice", jax.ShapeDtypeStruct(shape, x.dtype), x)
    assert (result.shape, result.dtype) == (shape, x.dtype)
    np.testing.assert_array_equal(np.asarray(result), x + x)


def test_many_blocks():
    x = np.arange(3_000_001, dtype=np.int64)
    np.testing.assert_array_equal(np.asarray(call("arrays.twice", jax.ShapeDtypeStruct(x.shape, x.dtype), x)), 2 * x)


def test_several_results_of_several_dtypes():
    a, b = np.arange(1, 101, dtype=np.int32), np.full(100, 7, np.int32)
    like = jax.ShapeDtypeStruct(a.shape, a.dtype)
    quotient, rest, exact = call("arrays.divmod", (like, like, jax.ShapeDtypeStruct(a.shape, jnp.bool_)), a, b)
    np.testing.assert_array_equal(quotient, a // b)
    np.testing.assert_array_equal(rest, a % b)
    np.testing.assert_array_equal(exact, a % b == 0)
