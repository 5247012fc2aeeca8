"""Published code without a stream runs in the order of XLA's stream."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime
from tests.support import cuda


def test_work_without_a_stream_waits_for_xla_and_xla_for_it():
    module = be_runtime.load_cuda_inline("on_default_stream", cuda.source("default_stream"), default_stream="xla")
    x = jnp.arange(1_000_000.0)

    @jax.jit
    def run(x: Any) -> Any:
        for _ in range(20):
            x = module.shift(jnp.flip(module.first(jnp.flip(x))))
        return module.sorted(jnp.flip(x))

    expected = np.arange(1_000_000.0, dtype=np.float32)
    for _ in range(20):
        expected = expected[::-1].copy()
        expected[0] += 1
        expected = expected[::-1] + 1
    for _ in range(3):
        np.testing.assert_array_equal(run(x), np.sort(expected))


def test_recorded_launches_and_fills_replay():
    text = cuda.source("default_stream").partition("// @BE first")[0].replace("#include <thrust", "// #include <thrust")
    shift = be_runtime.load_cuda_inline("shift_alone", text, default_stream="xla").shift
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: shift(y), x))
    for start in (0.0, 7.0):
        np.testing.assert_array_equal(run(jnp.full(1000, start)), np.full(1000, start + 50))
