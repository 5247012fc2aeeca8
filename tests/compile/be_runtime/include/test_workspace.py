"""Scratch memory, declared or asked for while running, and `parallel_for` on XLA's threads however they are nested."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compile.be_runtime.include.conftest import KERNELS
from tests.support.jax_names import enable_x64
from tests.support.runtime import environment, run_python

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
        ("declared", (X,), [X], "takes 1 argument and 3 results, .* passes 1 and 1"),
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
        (-4, 1, "INVALID_ARGUMENT: .*sized: allocate of -4 bytes: a size must be between 0 and 140737488355328 bytes"),
        (2**62, 1, "INVALID_ARGUMENT: .*allocate of 4611686018427387904 bytes"),
        (2**61, 8, "INVALID_ARGUMENT: .*allocate of 2305843009213693952 objects of 8 bytes"),
        (-1, 4096, "INVALID_ARGUMENT: .*allocate of -1 objects of 4096 bytes"),
        (2**47, 1, "RESOURCE_EXHAUSTED: .*allocate of 140737488355328 bytes: the host is out of memory"),
        (1, 0, r"INVALID_ARGUMENT: .*bare scratch.*call allocate\(bytes\), or declare it, as in scratch\[n\*4\]"),
    ],
)
def test_a_size_that_is_none_is_refused(call: Call, refused: Call, count: int, item: int, message: str):
    assert re.search(message, refused("sized", NUMBER, count=np.int64(count), item=np.int32(item)))
    assert call("sized", NUMBER, count=np.int64(1), item=np.int32(8))[0] == 0, "the next call has its memory"


XS = jnp.arange(1 << 16, dtype=jnp.float32)


@pytest.mark.parametrize("grain", [1 << 20, 1 << 16, 1 << 15, 1000, 7, 1, 0, -5])
def test_all_is_done_once_also_nested_with_memory_of_each_part(call: Call, grain: int):
    for size in (0, 1, 1000, 1 << 16):
        np.testing.assert_array_equal(call("plain", XS[:size], XS[:size], grain=np.int64(grain)), np.arange(size) + 1)
    if grain >= 1000:
        np.testing.assert_array_equal(call("nested", XS, XS, grain=np.int64(grain // 10)), np.arange(XS.size) + 1)


def test_sixteen_nested_calls_from_each_of_three_threads(call: Call):
    """All threads of the pool are busy, and some of them are callers themselves."""
    many = jax.jit(lambda x: sum(call("nested", XS, x + i, grain=np.int64(2048)) for i in range(16)))
    wanted = np.asarray(XS) * 16 + 16 + 120
    right: list[bool] = []

    def run() -> None:
        right.extend(bool((np.asarray(many(XS)) == wanted).all()) for _ in range(10))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert right == [True] * 30


def test_the_exception_of_a_part_comes_back(call: Call):
    for at in (0, 777, 9999) * 5:
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"throws: .*part of {at}\\b"):
            call("throws", NUMBER, n=np.int64(10_000), at=np.int64(at))
    assert call("throws", NUMBER, n=np.int64(10_000), at=np.int64(-1))[0] == 1


def test_parts_are_no_smaller_than_the_grain_no_more_than_useful_and_shared(call: Call):
    def parts(n: int, grain: int) -> Any:
        """Their number, their sum, the smallest, the threads that ran some."""
        with enable_x64(True):
            return call("parts", jax.ShapeDtypeStruct((4,), np.int64), n=np.int64(n), grain=np.int64(grain)).tolist()

    assert parts(100, 100)[::3] == [1, 1]
    assert parts(1001, 100)[:3] == [11, 1001, 100]
    count, total, *_ = parts(1_000_000, 1)
    assert total == 1_000_000
    assert count <= 64 * (os.cpu_count() or 1)
    assert os.cpu_count() == 1 or any(parts(100, 1)[3] > 1 for _ in range(20)), "other threads help"
    assert call("tabled", NUMBER)[0] == 1, "a constructor of a state runs all itself"


ALONE = """
import sys
import jax, jax.numpy as jnp, numpy as np
import be_runtime

be_runtime.load_cpp_file(sys.argv[1], name="workspace_inlined")
x = jnp.arange(1 << 16, dtype=jnp.float32)
for function in ("plain", "nested"):
    y = jax.ffi.ffi_call(f"workspace_inlined.{function}", x)(x, grain=np.int64(100))
    print(bool((y == x + 1).all()))
"""


@pytest.mark.full
def test_a_pool_of_one_thread_is_enough():
    done = run_python(ALONE, str(KERNELS / "workspace.cc"), env=environment(NPROC="1", PJRT_NPROC="1"))
    assert done.stdout.split() == ["True", "True"]
