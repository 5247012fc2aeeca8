"""Arrays of every element type of numpy's sizes and of every rank reach a kernel and come back."""

from __future__ import annotations

from collections.abc import Generator
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

SOURCE = r"""
#include <string.h>
#include "brainevent/common.h"

// @BE copy arg ret
void copy(const BE::Tensor x, BE::Tensor out) {
  BE_CHECK(x.nbytes() == out.nbytes()) << "sizes differ";
  memcpy(out.data_ptr(), x.data_ptr(), x.nbytes());
}

// What the kernel sees: dtype, ndim, numel, nbytes, element_size, then shape and strides.
// @BE describe
void describe(const BE::Tensor& x, BE::Tensor& out) {
  int64_t* to = out.data_ptr<int64_t>();
  *to++ = static_cast<int64_t>(x.dtype());
  *to++ = x.ndim();
  *to++ = x.numel();
  *to++ = static_cast<int64_t>(x.nbytes());
  *to++ = static_cast<int64_t>(x.element_size());
  for (int i = 0; i < x.ndim(); ++i) *to++ = x.shape(i);
  for (int i = 0; i < x.ndim(); ++i) *to++ = x.stride(i);
}

// @BE twice
void twice(const BE::Tensor x, BE::Tensor out) {
  BE_DISPATCH_ALL(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<T>()[i] = x.data_ptr<T>()[i] + x.data_ptr<T>()[i];
  });
}

// @BE fill
void fill(BE::Tensor out) {
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<float>()[i] = 7.0f + i;
}

// Results between the arguments, of another type and another shape each.
// @BE parts ret arg ret ret
void parts(BE::Tensor sum, const BE::Tensor x, BE::Tensor negative, BE::Tensor count) {
  float total = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    total += x.data_ptr<float>()[i];
    negative.data_ptr<bool>()[i] = x.data_ptr<float>()[i] < 0;
  }
  sum.data_ptr<float>()[0] = total;
  count.data_ptr<int32_t>()[0] = x.numel_checked_int();
}

// Says whether it was called at all.
// @BE count_elements
void count_elements(const BE::Tensor a, const BE::Tensor b, BE::Tensor out) {
  out.data_ptr<int32_t>()[0] = 1000 + a.numel_checked_int() + 10 * b.numel_checked_int();
}

// @BE reject
void reject(const BE::Tensor, BE::Tensor) { BE_CHECK(false) << "was called"; }

// @BE address_bits arg ret
void address_bits(const BE::Tensor x, BE::Tensor out) {
  out.data_ptr<int32_t>()[0] = static_cast<int32_t>(reinterpret_cast<uintptr_t>(x.data_ptr()) % 16);
}
"""

SHAPES = [(), (3,), (2, 3), (2, 3, 2), (1, 2, 3, 2), (2,) * 5, (1, 2) * 3, (2,) * 7, (2, 1, 3, 1, 2, 1, 2, 2)]
EMPTY_SHAPES = [(0,), (3, 0), (0, 3), (2, 0, 3), (0, 0), (1, 0, 1, 1, 1, 1, 1, 1)]


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("arrays", SOURCE)


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def sample(shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """Values that every type holds exactly, complex ones with an imaginary part."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 11
    if name.startswith("complex"):
        values = values + 1j * (values + 3)
    return values.astype(jnp.dtype(name))


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("name", ATTR_TYPES)
def test_each_dtype_round_trips(name: str):
    x = sample((4, 5), name)
    out = call("arrays.copy", like(x), x)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("row", ATTR_TYPES.values(), ids=lambda row: row.name)
def test_each_dtype_has_its_code_and_size(row: Any):
    x = sample((4,), row.name)
    seen = call("arrays.describe", jax.ShapeDtypeStruct((7,), np.int64), x)
    assert list(seen) == [ROWS[row.name].be_code, 1, 4, 4 * x.dtype.itemsize, x.dtype.itemsize, 4, 1]


@pytest.mark.parametrize("name", ATTR_TYPES)
def test_each_dtype_can_be_computed_with(name: str):
    x = sample((6,), name)
    np.testing.assert_array_equal(call("arrays.twice", like(x), x), x + x)


@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_each_rank_round_trips(shape: tuple[int, ...]):
    x = sample(shape, "float32")
    np.testing.assert_array_equal(call("arrays.copy", like(x), x), x)


@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_each_rank_has_its_shape_and_strides(shape: tuple[int, ...]):
    x = sample(shape, "int16")
    seen = call("arrays.describe", jax.ShapeDtypeStruct((5 + 2 * len(shape),), np.int64), x)
    strides = [step // x.itemsize for step in x.strides]
    assert list(seen[1:5]) == [len(shape), x.size, x.nbytes, 2]
    assert list(seen[5:]) == [*shape, *strides]


@pytest.mark.parametrize("shape", EMPTY_SHAPES, ids=str)
def test_empty_arrays(shape: tuple[int, ...]):
    x = np.zeros(shape, np.float32)
    assert call("arrays.copy", like(x), x).shape == shape
    seen = call("arrays.describe", jax.ShapeDtypeStruct((5 + 2 * len(shape),), np.int64), x)
    assert list(seen[1:5]) == [len(shape), 0, 0, 4]
    assert list(seen[5 : 5 + len(shape)]) == list(shape)


def test_an_empty_argument_still_calls_the_kernel():
    out = jax.ShapeDtypeStruct((), np.int32)
    assert call("arrays.count_elements", out, np.zeros(0, np.int8), np.zeros(3)) == 1030
    assert call("arrays.count_elements", out, np.zeros((2, 0)), np.zeros((0, 2))) == 1000


def test_where_all_results_are_empty_the_kernel_is_not_called():
    x = np.ones(3, np.float32)
    nothing = jax.ShapeDtypeStruct((0, 2), np.float32)
    assert call("arrays.reject", nothing, x).shape == (0, 2)
    kept = jax.ffi.ffi_call("arrays.reject", nothing, has_side_effect=True)  # XLA itself drops a call without effects
    assert jax.block_until_ready(jax.jit(kept)(x)).shape == (0, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="was called"):
        call("arrays.reject", like(x), x).block_until_ready()


def test_a_call_without_arguments():
    np.testing.assert_array_equal(call("arrays.fill", jax.ShapeDtypeStruct((3,), np.float32)), [7, 8, 9])


def test_several_results_among_the_arguments():
    x = np.array([1.0, -2.0, 4.0], np.float32)
    outs = (
        jax.ShapeDtypeStruct((), np.float32),
        jax.ShapeDtypeStruct((3,), np.bool_),
        jax.ShapeDtypeStruct((1,), np.int32),
    )
    total, negative, count = call("arrays.parts", outs, x)
    assert total == 3.0
    assert list(negative) == [False, True, False]
    assert list(count) == [3]


def test_other_layouts_arrive_dense_and_row_major():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    @jax.jit
    def transposed(x: Any) -> Any:
        return jax.ffi.ffi_call("arrays.copy", jax.ShapeDtypeStruct((4, 3), x.dtype))(x.T)

    np.testing.assert_array_equal(transposed(x), x.T)
    np.testing.assert_array_equal(call("arrays.copy", like(x[:, ::2]), x[:, ::2]), x[:, ::2])


def test_outside_of_jit():
    x = jnp.arange(5.0)
    np.testing.assert_array_equal(jax.ffi.ffi_call("arrays.copy", like(x))(x), x)


def test_elements_are_aligned():
    assert call("arrays.address_bits", jax.ShapeDtypeStruct((), np.int32), np.ones(3, np.complex128)) == 0
