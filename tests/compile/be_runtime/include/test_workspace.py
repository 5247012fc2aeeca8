"""Scratch memory in both forms: declared, passed as further results by a direct call, and asked for while running."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

X = jnp.arange(8, dtype=jnp.float32)
NUMBER = jax.ShapeDtypeStruct((1,), jnp.int32)
Call = Callable[..., Any]


def memory(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


def test_declared_memory_is_a_result_that_nobody_keeps(call: Call):
    @jax.jit
    def run(x: jax.Array) -> Any:
        for _ in range(20):
            x = call("megabyte", (X, memory(1 << 20)), x)[0]
        return x

    np.testing.assert_array_equal(run(X), np.arange(8) * 2.0**20)
    analysis: Any = run.lower(X).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 2 << 20, "20 calls share one buffer of a megabyte"


def test_declared_memory_has_the_size_that_the_call_passes(call: Call):
    assert call("declared", (X[:1], memory(4), memory(128)), X[:1])[0][0] == 4128
    assert call("declared", (X[:0], memory(4), memory(128)), X[:0])[0].shape == (0,), "there is nothing to compute"

    def spread(method: str) -> Any:
        return jax.vmap(lambda x: call("spread", (X[:1], memory(100)), x, vmap_method=method)[0])(X[:, None])

    np.testing.assert_array_equal(spread("sequential"), np.full((8, 1), 100))
    assert spread("broadcast_all")[0, 0] == 800, "vmap gives memory the batch too"


@pytest.mark.parametrize(
    ("function", "outs", "arrays", "message"),
    [
        ("megabyte", (X, memory(1 << 19)), [X], r"declared as \[... n\*131072\], which makes axis 0 1048576"),
        ("declared", (X[:1], memory(4), memory(127)), [X[:1]], "declared with 128 bytes, and the call passes 127"),
        ("declared", (X,), [X], "takes 1 arguments and 3 results, .* passes 1 and 1"),
        ("confused", (NUMBER, memory(8)), [], "declared scratch.*write a bare `scratch` in the arg_spec"),
    ],
)
def test_declared_memory_of_another_size_is_refused(
    refused: Call, function: str, outs: Any, arrays: list[Any], message: str
):
    assert re.search(message, refused(function, outs, *arrays))


def test_memory_that_is_asked_for(call: Call):
    np.testing.assert_array_equal(jax.jit(lambda x: call("asked", X, call("asked", X, x)))(X), 4 * X)
    assert not call("asked", X[:0], X[:0]).size
    assert call("sized", NUMBER, count=np.int64(0), item=np.int32(1))[0] == 1, "nothing is null"


@pytest.mark.parametrize(("size", "count"), [(1, 64), (1000, 64), (100_000, 30), (20_000_000, 3)])
def test_no_piece_overlaps_another(call: Call, size: int, count: int):
    for _ in range(3):
        assert call("pieces", NUMBER, bytes=np.int64(size), count=np.int32(count))[0] == 0


@pytest.mark.parametrize(
    ("count", "item", "message"),
    [
        (-4, 1, "INVALID_ARGUMENT: .*sized: allocate of -4 bytes: a size lies between 0 and 140737488355328 bytes"),
        (2**62, 1, "INVALID_ARGUMENT: .*allocate of 4611686018427387904 bytes"),
        (2**61, 8, "INVALID_ARGUMENT: .*allocate of 2305843009213693952 objects of 8 bytes"),
        (-1, 4096, "INVALID_ARGUMENT: .*allocate of -1 objects of 4096 bytes"),
        (2**47, 1, "RESOURCE_EXHAUSTED: .*allocate of 140737488355328 bytes: the host has no more"),
        (1, 0, r"INVALID_ARGUMENT: .*bare scratch.*call allocate\(bytes\), or declare it, as in scratch\[n\*4\]"),
    ],
)
def test_a_size_that_is_none_is_refused(call: Call, refused: Call, count: int, item: int, message: str):
    assert re.search(message, refused("sized", NUMBER, count=np.int64(count), item=np.int32(item)))
    assert call("sized", NUMBER, count=np.int64(1), item=np.int32(8))[0] == 0, "the next call has its memory"
