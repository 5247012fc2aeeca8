"""`BE::parallel_for` on XLA's threads: right however it is nested and loaded, and never waiting for a task to start."""

from __future__ import annotations

import os
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

NUMBER = jax.ShapeDtypeStruct((1,), jnp.int32)
X = jnp.arange(1 << 16, dtype=jnp.float32)
Call = Callable[..., Any]


@pytest.mark.parametrize("grain", [1 << 20, 1 << 16, 1 << 15, 1000, 7, 1, 0, -5])
def test_all_is_done_once_also_nested_with_memory_of_each_part(call: Call, grain: int):
    for size in (0, 1, 1000, 1 << 16):
        np.testing.assert_array_equal(call("plain", X[:size], X[:size], grain=np.int64(grain)), np.arange(size) + 1)
    if grain >= 1000:
        np.testing.assert_array_equal(call("nested", X, X, grain=np.int64(grain // 10)), np.arange(X.size) + 1)


def test_sixteen_nested_calls_from_each_of_three_threads(call: Call):
    """All threads of the pool are busy, and some of them are callers themselves."""
    many = jax.jit(lambda x: sum(call("nested", X, x + i, grain=np.int64(2048)) for i in range(16)))
    wanted = np.asarray(X) * 16 + 16 + 120
    right: list[bool] = []

    def run() -> None:
        right.extend(bool((np.asarray(many(X)) == wanted).all()) for _ in range(10))

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

be_runtime.load_cpp_file(sys.argv[1], name="parallel_inlined")
x = jnp.arange(1 << 16, dtype=jnp.float32)
for function in ("plain", "nested"):
    y = jax.ffi.ffi_call(f"parallel_inlined.{function}", x)(x, grain=np.int64(100))
    print(bool((y == x + 1).all()))
"""


@pytest.mark.full
def test_a_pool_of_one_thread_is_enough():
    done = run_python(ALONE, str(KERNELS / "parallel.cc"), env=environment(NPROC="1", PJRT_NPROC="1"))
    assert done.stdout.split() == ["True", "True"]
