"""CUDA graphs: with the trait a program's launches are recorded once and replayed, without it never."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cuda import KERNELS, run_json

CALLS, RUNS, LOOPS = 10, 20, 50
FLAGS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE,CONDITIONAL --xla_gpu_graph_min_graph_size=1"
PROGRAM = """
import ctypes, json, pathlib, sys

import jax, jax.numpy as jnp, numpy as np

import be_runtime

calls, runs, loops = map(int, sys.argv[2:])
text = pathlib.Path(sys.argv[1]).read_text()
modules = {
    "recorded": be_runtime.load_cuda_inline("graph", text, target_prefix="recorded"),
    "plain": be_runtime.load_cuda_inline("graph", text, target_prefix="plain", allow_cuda_graph=False),
}
library = ctypes.CDLL(str(modules["plain"].path))
counts = lambda: (library.count_calls(), library.count_recorded())

def step(prefix, x):
    return jax.ffi.ffi_call(f"{prefix}.step", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

def chain(prefix, x):
    for _ in range(calls):
        x = step(prefix, x)
    return x

def loop(prefix, x):
    return jax.lax.fori_loop(0, loops, lambda _, x: step(prefix, x), x)

def measure(function, prefix, added):
    run = jax.jit(lambda x: function(prefix, x))
    x = jnp.arange(1000, dtype=jnp.float32)
    before, wrong = counts(), 0
    for i in range(runs):
        out = np.asarray(run(x + i))
        wrong += not np.array_equal(out, np.arange(1000) + i + added)
    after = counts()
    return {"calls": after[0] - before[0], "recorded": after[1] - before[1], "wrong": wrong}

found = {"paths": len({str(module.path) for module in modules.values()})}
for prefix in modules:
    found[f"{prefix} chain"] = measure(chain, prefix, calls)
    found[f"{prefix} loop"] = measure(loop, prefix, loops)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    sizes = map(str, (CALLS, RUNS, LOOPS))
    return run_json(PROGRAM, str(KERNELS / "graph.cu"), *sizes, XLA_FLAGS=FLAGS)


def test_with_the_trait_launches_are_replayed(found: Any):
    assert found["paths"] == 1, "both registrations share one library"
    chain, loop = found["recorded chain"], found["recorded loop"]
    assert (chain["wrong"], loop["wrong"]) == (0, 0)
    assert chain["recorded"] > 0, chain
    assert 0 < chain["calls"] < CALLS * RUNS // 2, chain
    assert loop["calls"] <= LOOPS * RUNS, loop


def test_without_the_trait_the_launcher_runs_every_time(found: Any):
    assert found["plain chain"] == {"calls": CALLS * RUNS, "recorded": 0, "wrong": 0}
    assert found["plain loop"] == {"calls": LOOPS * RUNS, "recorded": 0, "wrong": 0}
