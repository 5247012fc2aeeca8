"""Declared axes: what a call with other shapes is told, and what `vmap` can't get wrong any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime

SOURCE = r"""
#include "brainevent/common.h"

// @BE matvec arg[n k] arg[k] ret[n]
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.size(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += a.data_ptr<float>()[i * k + j] * x.data_ptr<float>()[j];
    y.data_ptr<float>()[i] = sum;
  }
}

// @BE cross arg[... 3] arg ret[... 3]
void cross(const BE::Tensor x, const BE::Tensor other, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + other.data_ptr<float>()[0];
}

// @BE total arg[n] ret[]
void total(const BE::Tensor x, BE::Tensor y) {
  float sum = 0;
  for (int64_t i = 0; i < x.size(0); ++i) sum += x.data_ptr<float>()[i];
  y.data_ptr<float>()[0] = sum;
}
"""


HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
"""What makes g++ compile a handler with its entry point, and what keeps it from that."""
Call = Callable[..., jax.Array]


@pytest.fixture(scope="module", params=HANDLERS, name="call")
def _call(request: pytest.FixtureRequest) -> Call:
    name = f"axes_{request.param}"
    be_runtime.load_cpp_inline(name, SOURCE, extra_ldflags=HANDLERS[request.param])

    def call(function: str, *arrays: jax.Array, shape: tuple[int, ...], vmap_method: str | None = None) -> Any:
        out = jax.ShapeDtypeStruct(shape, jnp.float32)
        return jax.ffi.ffi_call(f"{name}.{function}", out, vmap_method=vmap_method)(*arrays)

    return call


def ones(*shape: int) -> jax.Array:
    return jnp.ones(shape, jnp.float32)


def test_arrays_as_declared(call: Call):
    np.testing.assert_array_equal(call("matvec", ones(2, 3), ones(3), shape=(2,)), [3, 3])
    np.testing.assert_array_equal(call("total", ones(5), shape=()), 5)
    for shape in ((3,), (2, 3), (4, 2, 3)):
        np.testing.assert_array_equal(call("cross", ones(*shape), ones(1), shape=shape), np.full(shape, 2))


@pytest.mark.parametrize(
    ("name", "shapes", "shape", "message"),
    [
        ("matvec", [(2, 4), (5,)], (2,), "axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)"),
        ("matvec", [(2, 4), (4,)], (3,), "axis n is 2 in argument 0 (axis 0) and 3 in result 0 (axis 0)"),
        ("matvec", [(2,), (2,)], (2,), "argument 0 has the shape (2,), but its axes are declared as [n k]"),
        ("total", [(3,)], (1,), "result 0 has the shape (1,), but its axes are declared as []"),
        ("cross", [(2, 4), (1,)], (2, 4), "an axis is declared as 3 and is 4 in argument 0 (axis 1)"),
        ("cross", [(2, 3), (1,)], (4, 3), "the leading axes of argument 0 and result 0 differ"),
        ("cross", [(2, 3), (1,)], (3,), "the leading axes of argument 0 and result 0 differ"),
    ],
)
def test_other_arrays_are_refused(
    call: Call, name: str, shapes: list[tuple[int, ...]], shape: tuple[int, ...], message: str
):
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        call(name, *(ones(*each) for each in shapes), shape=shape)
    assert f".{name}: {message}" in str(caught.value)


@pytest.mark.parametrize("method", ["broadcast_all", "expand_dims"])
def test_a_batch_that_the_kernel_would_take_for_a_longer_array_is_refused(call: Call, method: str):
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"shape \(4, 3\).*declared as \[n\].*sequential.*\[\.\.\. n\]"
    ):
        jax.vmap(lambda x: call("total", x, shape=(), vmap_method=method))(ones(4, 3))
    rows = jax.vmap(lambda x: call("total", x, shape=(), vmap_method="sequential"))(ones(4, 3))
    np.testing.assert_array_equal(rows, [3, 3, 3, 3])


def test_leading_axes_take_a_batch(call: Call):
    batched: Any = jax.vmap(lambda x: call("cross", x, ones(1), shape=(3,), vmap_method="broadcast_all"))
    np.testing.assert_array_equal(batched(ones(5, 3)), np.full((5, 3), 2))


def test_axes_are_given_in_python_too():
    bare = SOURCE.replace("// @BE", "//")
    be_runtime.load_cpp_inline("axes_listed", bare, functions={"total": ["arg[n]", "ret[]"]})
    out = jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"declared as \[n\]"):
        jax.ffi.ffi_call("axes_listed.total", out)(ones(2, 3))
