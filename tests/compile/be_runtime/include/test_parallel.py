"""`BE::parallel_for` on XLA's threads: right however it is nested and loaded, and never waiting for a task to start."""

from __future__ import annotations

import os
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.jax_names import enable_x64
from tests.support.runtime import environment, run_python

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

static void shift(const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] + 1;
}

// @BE plain
void plain(const BE::Tensor x, BE::Tensor y, int64_t grain) {
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), grain, [=](int64_t begin, int64_t end) { shift(in, out, begin, end); });
}

// Three levels, each with memory of its own.
// @BE nested
void nested(const BE::Tensor x, BE::Tensor y, int64_t grain, BE::Workspace workspace) {
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
    float* outer = workspace.allocate_as<float>(end - begin);
    for (int64_t i = begin; i < end; ++i) outer[i - begin] = in[i];
    BE::parallel_for(end - begin, grain / 8 + 1, [&](int64_t b, int64_t e) {
      float* inner = workspace.allocate_as<float>(e - b);
      for (int64_t i = b; i < e; ++i) inner[i - b] = outer[i];
      BE::parallel_for(e - b, 16, [&](int64_t from, int64_t to) { shift(inner, out + begin + b, from, to); });
    });
  });
}

// @BE throws
void throws(BE::Tensor y, int64_t n, int64_t at) {
  BE::parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    if (begin <= at && at < end) BE_CHECK(false) << "part of " << at;
  });
  y.data_ptr<int32_t>()[0] = 1;
}

// The parts that it makes: their number, their sum, the smallest, the threads that ran some.
// @BE parts
void parts(BE::Tensor y, int64_t n, int64_t grain) {
  int64_t count = 0, sum = 0, least = INT64_MAX;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int64_t threads = 0;
  pthread_t seen[256];
  BE::parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    pthread_mutex_lock(&lock);
    ++count, sum += end - begin;
    if (end < n && end - begin < least) least = end - begin;
    int64_t i = 0;
    while (i < threads && !pthread_equal(seen[i], pthread_self())) ++i;
    if (i == threads) seen[threads++] = pthread_self();
    pthread_mutex_unlock(&lock);
    usleep(300);  // leaves the core to the others
  });
  int64_t* out = y.data_ptr<int64_t>();
  out[0] = count, out[1] = sum, out[2] = least, out[3] = threads;
}

struct Table {
  Table() {
    BE::parallel_for(100, 1, [&](int64_t begin, int64_t end) { parts += end - begin == 100; });
  }
  int parts = 0;
};

// A constructor has no threads.
// @BE tabled
void tabled(BE::Tensor y, const BE::State<Table>& table) { y.data_ptr<int32_t>()[0] = table->parts; }
"""

HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
NUMBER = jax.ShapeDtypeStruct((1,), jnp.int32)
X = jnp.arange(1 << 16, dtype=jnp.float32)


@pytest.fixture(scope="module", params=HANDLERS, name="name")
def _name(request: pytest.FixtureRequest) -> str:
    name = f"parallel_{request.param}"
    be_runtime.load_cpp_inline(name, SOURCE, extra_ldflags=HANDLERS[request.param])
    return name


def call(target: str, outs: Any, *args: Any, **attrs: Any) -> Any:
    caller: Any = jax.ffi.ffi_call(target, outs)
    return caller(*args, **attrs)


def shifted(target: str, x: jax.Array, grain: int) -> Any:
    return call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), x, grain=np.int64(grain))


@pytest.mark.parametrize("grain", [1 << 20, 1 << 16, 1 << 15, 1000, 7, 1, 0, -5])
@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 16])
def test_all_is_done_once(name: str, size: int, grain: int):
    np.testing.assert_array_equal(shifted(f"{name}.plain", X[:size], grain), np.arange(size) + 1)


@pytest.mark.parametrize("grain", [1 << 16, 4096, 100])
def test_nested_with_memory_of_each_part(name: str, grain: int):
    np.testing.assert_array_equal(shifted(f"{name}.nested", X, grain), np.arange(X.size) + 1)


def test_sixteen_nested_calls_from_each_of_three_threads(name: str):
    """All threads of the pool are busy, and some of them are callers themselves."""
    many = jax.jit(lambda x: sum(shifted(f"{name}.nested", x + i, 2048) for i in range(16)))
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


@pytest.mark.parametrize("at", [0, 777, 9999])
def test_the_exception_of_a_part_comes_back(name: str, at: int):
    for _ in range(5):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"throws: .*part of {at}\\b"):
            call(f"{name}.throws", NUMBER, n=np.int64(10_000), at=np.int64(at))
    assert call(f"{name}.throws", NUMBER, n=np.int64(10_000), at=np.int64(-1))[0] == 1


def parts(target: str, n: int, grain: int) -> list[int]:
    with enable_x64(True):
        out = jax.ShapeDtypeStruct((4,), np.int64)
        return [int(each) for each in call(target, out, n=np.int64(n), grain=np.int64(grain))]


def test_parts_are_no_smaller_than_the_grain_and_no_more_than_useful(name: str):
    assert parts(f"{name}.parts", 100, 100)[::3] == [1, 1]
    count, total, least, _ = parts(f"{name}.parts", 1001, 100)
    assert (count, total, least) == (11, 1001, 100)
    count, total, least, _ = parts(f"{name}.parts", 1_000_000, 1)
    assert total == 1_000_000
    assert count <= 64 * (os.cpu_count() or 1)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor")
def test_other_threads_help(name: str):
    assert any(parts(f"{name}.parts", 100, 1)[3] > 1 for _ in range(20))


def test_a_constructor_of_state_runs_all_itself(name: str):
    assert call(f"{name}.tabled", NUMBER)[0] == 1


ALONE = """
import sys
import jax, jax.numpy as jnp, numpy as np
import be_runtime

be_runtime.load_cpp_inline("parallel_inlined", sys.argv[1])
x = jnp.arange(1 << 16, dtype=jnp.float32)
out = jax.ShapeDtypeStruct(x.shape, x.dtype)
for function in ("plain", "nested"):
    y = jax.ffi.ffi_call(f"parallel_inlined.{function}", out)(x, grain=np.int64(100))
    print(bool((y == x + 1).all()))
"""


def test_a_pool_of_one_thread_is_enough():
    done = run_python(ALONE, SOURCE, env=environment(NPROC="1", PJRT_NPROC="1"))
    assert done.stdout.split() == ["True", "True"]
