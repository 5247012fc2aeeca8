"""Floats of 8 bits, and elements of 2 and 4 bits that share bytes, in C++ kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import call
from tests.support.small_types import FLOAT8, PACKED, SMALL, every_code, told_apart

SOURCE = r"""
#include <string.h>
#include "brainevent/common.h"
#include "brainevent/dispatch.h"

// @BE copy
void copy(const BE::Tensor& x, BE::Tensor& out) {
  BE_CHECK(x.nbytes() == out.nbytes() && x.dtype() == out.dtype());
  memcpy(out.data_ptr<uint8_t>(), x.data_ptr<uint8_t>(), x.nbytes());
}

// @BE bytes
void bytes(const BE::Tensor& x, BE::Tensor& out) { *out.data_ptr<int32_t>() = static_cast<int32_t>(x.nbytes()); }

// @BE element_size
void element_size(const BE::Tensor& x, BE::Tensor& out) {
  *out.data_ptr<int32_t>() = static_cast<int32_t>(x.element_size());
}

// @BE as_int8
void as_int8(const BE::Tensor& x, BE::Tensor& out) { *out.data_ptr<int8_t>() = *x.data_ptr<int8_t>(); }

// @BE twice
void twice(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_FLOAT8(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<T>()[i] = x.data_ptr<T>()[i] + x.data_ptr<T>()[i];
  });
}

// @BE unpack
void unpack(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_PACKED(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = BE::load_packed(x.data_ptr<T>(), i);
  });
}

// @BE reverse
void reverse(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_PACKED(x.dtype(), T, {
    memset(out.data_ptr(), 0xa5, out.nbytes());
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) BE::store_packed(out.data_ptr<T>(), n - 1 - i, BE::load_packed(x.data_ptr<T>(), i));
  });
}

// Of each byte, the first element only.
// @BE firsts
void firsts(const BE::Tensor& x, BE::Tensor& out) {
  for (size_t i = 0; i < x.nbytes(); ++i) {
    BE_DISPATCH_PACKED(x.dtype(), T, { out.data_ptr<float>()[i] = x.data_ptr<T>()[i].get(0); });
  }
}
"""
EXTENTS = (13, (3, 5), (2, 3, 7), 1, 256)


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("small", SOURCE)


def like(x: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


ONE = jax.ShapeDtypeStruct((), np.int32)


@pytest.mark.parametrize("shape", EXTENTS, ids=str)
@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_each_type_round_trips_bit_for_bit(row: Any, shape: Any):
    x = every_code(row.name, int(np.prod(shape))).reshape(shape)
    out = call("small.copy", like(x), x)
    assert (out.dtype, told_apart(out)) == (x.dtype, told_apart(x))
    assert call("small.bytes", ONE, x) == -(-x.size * row.bits // 8)


@pytest.mark.parametrize("row", FLOAT8, ids=lambda row: row.name)
def test_floats_of_a_byte_are_computed_with(row: Any):
    x = every_code(row.name)
    with np.errstate(over="ignore"):
        expected = x + x
    found = np.asarray(call("small.twice", like(x), x))
    assert np.array_equal(found.astype(np.float32), expected.astype(np.float32), equal_nan=True)
    assert call("small.element_size", ONE, x) == 1


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_elements_that_share_bytes_are_read_and_written_one_by_one(row: Any):
    x = every_code(row.name, 13)
    assert told_apart(call("small.unpack", like(x, np.float32), x)) == told_apart(x.astype(np.float32))
    assert told_apart(call("small.reverse", like(x), x)) == told_apart(x[::-1])
    firsts = x[:: 8 // row.bits].astype(np.float32)
    assert told_apart(call("small.firsts", like(firsts), x)) == told_apart(firsts)


@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_an_element_that_shares_a_byte_has_no_size_in_bytes(row: Any):
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"element_size\(\): elements of {row.name} share"):
        call("small.element_size", ONE, every_code(row.name, 13)).block_until_ready()


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_they_are_no_int8(row: Any):
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"data_ptr<.*>\(\) of an? {row.name} tensor"):
        call("small.as_int8", jax.ShapeDtypeStruct((), np.int8), every_code(row.name, 3)).block_until_ready()


@pytest.mark.parametrize("method", ["sequential", "broadcast_all"])
@pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
def test_slices_that_begin_within_a_byte(row: Any, method: str):
    """A batch arrives as one array without gaps, and XLA takes slices apart."""
    x = every_code(row.name, 39).reshape(3, 13)
    kernel = jax.ffi.ffi_call("small.copy", like(x[0]), vmap_method=method)
    assert told_apart(jax.jit(jax.vmap(kernel))(jnp.asarray(x))) == told_apart(x)
