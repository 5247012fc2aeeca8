"""Every dtype, rank and number of arrays reaches a kernel and comes back, and every scalar attribute does."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source
from tests.support.jax_names import enable_x64

CODES = {
    "float16": 0,
    "float32": 1,
    "float64": 2,
    "bfloat16": 3,
    "int8": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "uint8": 8,
    "uint16": 9,
    "uint32": 10,
    "uint64": 11,
    "bool": 12,
    "complex64": 13,
    "complex128": 14,
}
"""The numbers of `BE::DType`."""
EXTENTS = (2, 1, 3, 1, 2, 2, 1, 3)
SHAPES = [EXTENTS[:rank] for rank in range(9)]
EMPTY = [(0,), (3, 0), (0, 5, 2), (2, 0, 3, 4)]


@pytest.fixture(scope="module", autouse=True)
def _modules() -> None:
    be_runtime.load_cuda_inline("arrays", source("elementwise"))
    be_runtime.load_cuda_inline("attributes", source("attributes"))


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def some_values(shape: tuple[int, ...], dtype: str) -> Any:
    """Values whose double every dtype can hold, negative and fractional where it has such."""
    kind = jnp.dtype(dtype)
    values: Any = np.arange(math.prod(shape)).reshape(shape) % 50
    if jnp.issubdtype(kind, jnp.bool_):
        values = values % 3 == 0
    elif jnp.issubdtype(kind, jnp.signedinteger):
        values = values - 25
    elif jnp.issubdtype(kind, jnp.floating):
        values = values / 4 - 6
    elif jnp.issubdtype(kind, jnp.complexfloating):
        values = values / 4 - 6 + 1j * (values % 7)
    return values.astype(kind)


def facts(x: np.ndarray) -> dict[str, Any]:
    found = np.asarray(call("arrays.describe", jax.ShapeDtypeStruct((24,), jnp.int64), x)).tolist()
    rank = found[0]
    return {
        "numel": found[1],
        "element_size": found[2],
        "nbytes": found[3],
        "dtype": found[4],
        "is_contiguous": found[5],
        "numel_checked_int": found[6],
        "pointers": found[7],
        "shape": tuple(found[8 : 8 + rank]),
        "strides": tuple(found[16 : 16 + rank]),
        "rest": {*found[8 + rank : 16], *found[16 + rank :]} - {-1},
    }


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(1,), (1000,)])
def test_every_dtype_is_computed_with(dtype: str, shape: tuple[int, ...]):
    x = some_values(shape, dtype)
    result = call("arrays.twice", jax.ShapeDtypeStruct(shape, x.dtype), x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(result), x + x)


@pytest.mark.parametrize("dtype", CODES)
def test_device_code_knows_every_dtype(dtype: str):
    x = some_values((4, 5), dtype)
    found = facts(x)
    assert (found["dtype"], found["element_size"], found["nbytes"]) == (CODES[dtype], x.itemsize, x.nbytes)


@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_every_rank(shape: tuple[int, ...]):
    x = some_values(shape, "float32")
    np.testing.assert_array_equal(np.asarray(call("arrays.twice", jax.ShapeDtypeStruct(shape, x.dtype), x)), x + x)
    assert facts(x) == {
        "numel": x.size,
        "element_size": 4,
        "nbytes": x.nbytes,
        "dtype": CODES["float32"],
        "is_contiguous": 1,
        "numel_checked_int": x.size,
        "pointers": 1,
        "shape": shape,
        "strides": tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))),
        "rest": set(),
    }


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex128"])
def test_empty_arrays(shape: tuple[int, ...], dtype: str):
    x = some_values(shape, dtype)
    result = call("arrays.twice", jax.ShapeDtypeStruct(shape, x.dtype), x)
    assert (result.shape, result.dtype) == (shape, x.dtype)
    found = facts(x)  # an empty argument with a result that is not
    assert (found["numel"], found["shape"]) == (0, shape)


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


@pytest.mark.parametrize("edge", [np.iinfo, None])
def test_integer_attributes(edge: Any):
    names = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    keywords = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
    largest = 2**63 - 1  # JAX makes every integer attribute of an int64
    values = [
        np.dtype(name).type(min(np.iinfo(name).max, largest) if edge is None else np.iinfo(name).min) for name in names
    ]
    outs = [jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.bool_, *names)]
    attrs: dict[str, Any] = dict(zip(keywords, values, strict=True))
    found = call("attributes.integers", outs, b=np.bool_(edge is None), **attrs)
    assert [value.item() for value in found] == [edge is None, *(value.item() for value in values)]


def test_floating_attributes():
    f16, bf16 = np.float16(-1.5), ml_dtypes.bfloat16(3.25)
    outs = [jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float64, jnp.float32, jnp.float16, jnp.bfloat16)]
    found = call(
        "attributes.floats",
        outs,
        f64=np.float64(0.1),
        f32=np.float32(0.1),
        # XLA has no 16-bit attributes: their bits travel.
        f16=f16.view(np.uint16),
        bf16=bf16.view(np.uint16),
    )
    assert [np.asarray(value).item() for value in found] == [0.1, np.float32(0.1).item(), f16.item(), float(bf16)]


def test_complex_attributes():
    outs = [jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.complex64, jnp.complex128)]
    # XLA has no complex attributes: their two parts travel.
    parts64, parts128 = np.array([1.5, -2.0], np.float32), np.array([0.1, 1e300], np.float64)
    found = call("attributes.complexes", outs, c64=parts64, c128=parts128)
    assert [value.item() for value in found] == [1.5 - 2j, complex(0.1, 1e300)]


def test_what_a_tensor_can_not_hold_is_an_error():
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"arrays\.describe: argument 0 .*9 dimensions"):
        call("arrays.describe", jax.ShapeDtypeStruct((24,), jnp.int64), jnp.zeros((1,) * 9, jnp.float32))


def test_wrong_number_of_arrays_is_an_error():
    x = jnp.ones(3)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"arrays\.twice: takes 1 arg.* passes 2 and 1"):
        call("arrays.twice", like, x, x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"arrays\.twice: takes 1 arg.* passes 1 and 2"):
        call("arrays.twice", (like, like), x)
