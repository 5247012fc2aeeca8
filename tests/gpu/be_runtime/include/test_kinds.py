"""Attributes of every kind, optional arrays and any number of them, on a device."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source

X = [np.full((3, 100), value, np.float32) for value in (1.0, 2.0, 5.0)]
OUT = jax.ShapeDtypeStruct(X[0].shape, np.float32)
FLOAT32 = np.int32(11)
"""XLA's number."""


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cuda_inline("kinds", source("kinds"))


def combine(*arrays: Any, **attrs: Any) -> Any:
    given = {"weights": np.array([1.0, 10.0]), "map": {"offset": np.float32(100)}, "type": FLOAT32, **attrs}
    return call("kinds.combine", OUT, *arrays, **given)


def test_a_call_with_all_of_it():
    assert np.all(combine(*X) == 1 + 20 + 500)
    assert np.all(combine(*X[:2], be_present=np.int64(0)) == 21)
    scaled = {"scale": np.float32(2), "offset": np.float32(-1)}
    assert np.all(combine(*X, map=scaled, mode="mean", name="n", be_present=np.int64(1)) == 21 - 5)


def test_any_number_of_results():
    shapes = [(4,), (2, 3), ()]
    arrays = [np.random.default_rng(0).random(shape).astype(np.float32) for shape in shapes]
    outs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    *copies, count = call("kinds.copies", [*outs, jax.ShapeDtypeStruct((1,), np.uint8)], *arrays)
    for copy, array in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal(copy, array)
    assert count.tolist() == [3]


def test_such_calls_can_be_recorded_in_a_cuda_graph():
    def chain(x: Any) -> Any:
        for _ in range(8):
            x = jax.ffi.ffi_call("kinds.combine", OUT)(
                x, x, weights=np.array([0.5]), map={"offset": np.float32(0.5)}, type=FLOAT32
            )
        return x

    np.testing.assert_allclose(jax.jit(chain)(X[1]), X[1])
