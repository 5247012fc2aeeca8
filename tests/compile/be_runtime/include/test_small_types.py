"""Floats of 8 bits, and elements of 2 and 4 bits that share bytes, in C++ kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.element_types import ROWS
from tests.support.runtime import call
from tests.support.small_types import FLOAT8, PACKED, SMALL, every_code, told_apart

ONE = jax.ShapeDtypeStruct((), np.int32)


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_file(Path(__file__).parent / "kernels" / "arrays.cc")


def like(x: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_each_type_round_trips_bit_for_bit_and_is_no_int8(row: Any):
    for shape in ((13,), (3, 5), (2, 3, 7), (1,), (256,)):
        x = every_code(row.name, int(np.prod(shape))).reshape(shape)
        out = call("arrays.copy", like(x), x)
        assert (out.dtype, told_apart(out)) == (x.dtype, told_apart(x))
        seen = call("arrays.describe", jax.ShapeDtypeStruct((5 + 2 * x.ndim,), np.int32), x)
        assert (seen[0], seen[3]) == (ROWS[row.name].be_code, -(-x.size * row.bits // 8))
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"data_ptr<.*>\(\) of an? {row.name} tensor"):
        call("arrays.as_int8", jax.ShapeDtypeStruct((), np.int8), x).block_until_ready()


@pytest.mark.parametrize("row", FLOAT8, ids=lambda row: row.name)
def test_floats_of_a_byte_are_computed_with(row: Any):
    x = every_code(row.name)
    with np.errstate(over="ignore"):
        expected = x + x
    found = np.asarray(call("arrays.twice_float8", like(x), x))
    assert np.array_equal(found.astype(np.float32), expected.astype(np.float32), equal_nan=True)
    assert call("arrays.element_size", ONE, x) == 1


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_elements_that_share_bytes_are_read_and_written_one_by_one(row: Any):
    x = every_code(row.name, 13)
    assert told_apart(call("arrays.unpack", like(x, np.float32), x)) == told_apart(x.astype(np.float32))
    assert told_apart(call("arrays.reverse", like(x), x)) == told_apart(x[::-1])
    firsts = x[:: 8 // row.bits].astype(np.float32)
    assert told_apart(call("arrays.firsts", like(firsts), x)) == told_apart(firsts)
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"element_size\(\): elements of {row.name} share"):
        call("arrays.element_size", ONE, x).block_until_ready()


@pytest.mark.parametrize("method", ["sequential", "broadcast_all"])
@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_slices_that_begin_within_a_byte(row: Any, method: str):
    """A batch arrives as one array without gaps, and XLA takes slices apart."""
    x = every_code(row.name, 39).reshape(3, 13)
    kernel = jax.ffi.ffi_call("arrays.copy", like(x[0]), vmap_method=method)
    assert told_apart(jax.jit(jax.vmap(kernel))(jnp.asarray(x))) == told_apart(x)
