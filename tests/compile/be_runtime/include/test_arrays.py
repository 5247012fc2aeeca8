"""Arrays of every element type, numbers of less than a byte too, and of every rank reach a kernel and come back."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import ATTR_TYPES
from tests.support.element_types import ROWS
from tests.support.jax_names import enable_x64
from tests.support.runtime import call
from tests.support.small_types import FLOAT8, PACKED, SMALL, every_code, told_apart

KERNELS = Path(__file__).parent / "kernels" / "arrays.cc"
SHAPES = [
    *((), (3,), (2, 3), (2, 3, 2), (1, 2, 3, 2), (2,) * 5, (1, 2) * 3, (2,) * 7, (2, 1, 3, 1, 2, 1, 2, 2)),
    *((0,), (3, 0), (0, 3), (2, 0, 3), (0, 0), (1, 0, 1, 1, 1, 1, 1, 1)),
]


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_file(KERNELS)


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def sample(shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """Values that every type holds exactly, complex ones with an imaginary part."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 11
    return (values + 1j * (values + 3) if name.startswith("complex") else values).astype(jnp.dtype(name))


def struct(shape: tuple[int, ...], dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def described(x: Any) -> Any:
    return np.asarray(call("arrays.describe", struct((5 + 2 * x.ndim,), np.int32), x)).tolist()


@pytest.mark.parametrize("name", ATTR_TYPES)
def test_each_dtype_arrives_can_be_computed_with_and_comes_back(name: str):
    x = sample((4, 5), name)
    same, twice = (call(f"arrays.{function}", struct(x.shape, x.dtype), x) for function in ("copy", "twice"))
    assert same.dtype == x.dtype
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(twice, x + x)
    assert described(x)[:5] == [ROWS[name].be_code, 2, 20, x.nbytes, 1]
    assert call("arrays.element_size", struct((), np.int32), x) == x.itemsize


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_rank_has_its_shape_and_strides(shape: tuple[int, ...]):
    x = sample(shape, "int16")
    same = call("arrays.copy", struct(shape, x.dtype), x)
    assert same.shape == shape
    np.testing.assert_array_equal(same, x)
    found = described(x)
    assert found[1:4] == [len(shape), x.size, x.nbytes]
    assert found[5 : 5 + x.ndim] == list(shape)
    assert x.size == 0 or found[5 + x.ndim :] == [step // x.itemsize for step in x.strides]


def test_an_empty_argument_still_calls_the_kernel():
    out = struct((), np.int32)
    assert call("arrays.count_elements", out, np.zeros(0, np.int8), np.zeros(3)) == 1030
    assert call("arrays.count_elements", out, np.zeros((2, 0)), np.zeros((0, 2))) == 1000


def test_where_all_results_are_empty_the_kernel_is_not_called():
    x, nothing = np.ones(3, np.float32), struct((0, 2))
    assert call("arrays.reject", nothing, x).shape == (0, 2)
    kept = jax.ffi.ffi_call("arrays.reject", nothing, has_side_effect=True)  # XLA itself drops a call without effects
    assert jax.block_until_ready(jax.jit(kept)(x)).shape == (0, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="was called"):
        call("arrays.reject", struct((3,)), x).block_until_ready()


def test_no_arguments_and_several_results_among_them():
    np.testing.assert_array_equal(call("arrays.fill", struct((3,))), [7, 8, 9])
    outs = (struct(()), struct((3,), np.bool_), struct((1,), np.int32))
    total, negative, count = call("arrays.parts", outs, np.array([1.0, -2.0, 4.0], np.float32))
    assert (total, list(negative), list(count)) == (3.0, [False, True, False], [3])


def test_other_layouts_arrive_dense_and_row_major():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    transposed = jax.jit(lambda x: jax.ffi.ffi_call("arrays.copy", struct((4, 3)))(x.T))
    np.testing.assert_array_equal(transposed(x), x.T)
    np.testing.assert_array_equal(jax.ffi.ffi_call("arrays.copy", struct((3, 2)))(x[:, ::2]), x[:, ::2])


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_each_type_round_trips_bit_for_bit_and_is_no_int8(row: Any):
    for shape in ((13,), (3, 5), (2, 3, 7), (1,), (256,)):
        x = every_code(row.name, int(np.prod(shape))).reshape(shape)
        out = call("arrays.copy", struct(x.shape, x.dtype), x)
        assert (out.dtype, told_apart(out)) == (x.dtype, told_apart(x))
        seen = described(x)
        assert (seen[0], seen[3]) == (ROWS[row.name].be_code, -(-x.size * row.bits // 8))
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"data_ptr<.*>\(\) of an? {row.name} tensor"):
        call("arrays.as_int8", struct((), np.int8), x).block_until_ready()


@pytest.mark.parametrize("row", FLOAT8, ids=lambda row: row.name)
def test_floats_of_a_byte_are_computed_with(row: Any):
    x = every_code(row.name)
    with np.errstate(over="ignore"):
        expected = x + x
    found = np.asarray(call("arrays.twice_float8", struct(x.shape, x.dtype), x))
    assert np.array_equal(found.astype(np.float32), expected.astype(np.float32), equal_nan=True)
    assert call("arrays.element_size", struct((), np.int32), x) == 1


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_elements_that_share_bytes_are_read_and_written_one_by_one(row: Any):
    x = every_code(row.name, 13)
    assert told_apart(call("arrays.unpack", struct(x.shape), x)) == told_apart(x.astype(np.float32))
    assert told_apart(call("arrays.reverse", struct(x.shape, x.dtype), x)) == told_apart(x[::-1])
    firsts = x[:: 8 // row.bits].astype(np.float32)
    assert told_apart(call("arrays.firsts", struct(firsts.shape), x)) == told_apart(firsts)
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"element_size\(\): elements of {row.name} are smaller"):
        call("arrays.element_size", struct((), np.int32), x).block_until_ready()


@pytest.mark.parametrize("method", ["sequential", "broadcast_all"])
@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_slices_that_begin_within_a_byte(row: Any, method: str):
    """A batch arrives as one array without gaps, and XLA takes slices apart."""
    x = every_code(row.name, 39).reshape(3, 13)
    kernel = jax.ffi.ffi_call("arrays.copy", struct(x[0].shape, x.dtype), vmap_method=method)
    assert told_apart(jax.jit(jax.vmap(kernel))(jnp.asarray(x))) == told_apart(x)
