"""CUDA graphs and options: what is recorded once and replayed, and what each option does to a call."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import KERNELS, call, run_json, source

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


ZEROS = """
import json
import jax, jax.numpy as jnp, numpy as np
import be_runtime

ops = be_runtime.load_cuda_inline("zeros", r'''
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void add(const float* x, float* y, int n) { if (threadIdx.x < n) atomicAdd(y, x[threadIdx.x]); }
// @BE total arg[n]:float32 ret[]:float32=0 stream
void total(const BE::Tensor x, BE::Tensor y, cudaStream_t stream) {
  add<<<1, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), int(x.numel()));
}
// @BE nothing ret[4]:float32=0
void nothing(BE::Tensor y) {}
__global__ void twice(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] *= 2; }
// @BE doubled inout[n]:float32 stream
void doubled(BE::Tensor y, cudaStream_t stream) { twice<<<1, 256, 0, stream>>>(y.data_ptr<float>(), int(y.numel())); }
// @BE untouched inout[n]:float32
void untouched(BE::Tensor y) {}
''')
text = jax.jit(lambda x: ops.total(x + ops.total(x) + ops.nothing()[0]))
x = jnp.arange(100, dtype=jnp.float32)
totals = [float(text(x + i)) for i in range(20)]
double = jax.jit(lambda x: (ops.doubled(ops.doubled(x)), ops.untouched(x), x))
by_target = jax.jit(lambda x: jax.ffi.ffi_call("zeros.doubled", jax.ShapeDtypeStruct(x.shape, x.dtype))(x))
wrong = 0
for i in range(20):
    quadruple, same, kept = double(x + i)
    wrong += not all(np.array_equal(*pair) for pair in ((quadruple, 4 * (x + i)), (same, x + i), (kept, x + i)))
    wrong += not np.array_equal(by_target(x + i), 2 * (x + i))
wrong += not np.array_equal(ops.doubled(x), 2 * x) or not np.array_equal(x, np.arange(100))
print(json.dumps([totals, wrong]))
"""


def test_results_have_their_contents_at_each_replay():
    """Zeros, and those of an input that is changed in place."""
    x = np.arange(100.0)
    assert run_json(ZEROS, XLA_FLAGS=FLAGS) == [[float((x + i).sum() * 101) for i in range(20)], 0]


FUNCTIONS = {"quotient": ["arg", "arg", "ret", "stream"], "norm": ["arg", "ret", "stream"]}
TINY = np.float32(1e-40)  # below the smallest normal float32


PAGE_FLAGS = ["--generate-line-info", "-maxrregcount=64", "--ptxas-options=-v", "-Xcompiler", "-march=native"]
"""Those that the seed page passes."""
PEAK = {"extra_cuda_cflags": ["-maxrregcount=64"], "ninja_workers": 2, "use_fast_math": True, "allow_cuda_graph": True}
WAYS: dict[str, dict[str, Any]] = {
    **{f"level_{level}": {"optimization_level": level} for level in range(4)},
    "fast": {"use_fast_math": True},
    "page_flags": {"extra_cuda_cflags": PAGE_FLAGS},
    "peak": PEAK,
    "two_archs": {"compute_capability": "8.0,9.0"},
    "older": {"compute_capability": "sm_75"},  # the device's driver translates its PTX
}


def quotient(module: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(call(f"{module}.quotient", jax.ShapeDtypeStruct(a.shape, a.dtype), a, b))


@pytest.mark.parametrize("way", WAYS)
def test_ordinary_numbers_and_numbers_below_the_smallest_normal_one(way: str):
    """Fast math flushes what exact math keeps."""
    prefix, texts = f"options.{way}", [source("arithmetic"), "// nothing more\n"]
    module = be_runtime.load_cuda_inline(way, texts, FUNCTIONS, target_prefix=prefix, **WAYS[way])
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 2.0, 1000).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(quotient(prefix, a, b), a / b, rtol=1e-6)
    x = rng.uniform(-1.0, 1.0, (50, 20)).astype(np.float32)
    norm = call(f"{prefix}.norm", jax.ShapeDtypeStruct((50,), jnp.float32), x)
    np.testing.assert_allclose(norm, np.linalg.norm(x, axis=1), rtol=1e-5)
    kept = 0.0 if "use_fast_math" in WAYS[way] else TINY
    assert quotient(prefix, np.full(4, TINY), np.ones(4, np.float32)).tolist() == [kept] * 4
    assert ctypes.CDLL(str(module.path)).host_is_optimized() == (way != "level_0")


def test_exact_division_is_that_of_ieee():
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1e3, 1e3, 100_000).astype(np.float32) for _ in range(2))
    be_runtime.load_cuda_inline("exact", source("arithmetic"), FUNCTIONS)
    np.testing.assert_array_equal(quotient("exact", a, b), a / b)


@pytest.mark.parametrize("flags", [[], ["--use_fast_math"], ["-O1"]])
def test_results_are_bit_for_bit_those_of_plain_nvcc(flags: list[str], tmp_path: Path):
    rng = np.random.default_rng(len(flags))
    a, b = (rng.uniform(-1e3, 1e3, 10_000).astype(np.float32) for _ in range(2))
    rows = rng.normal(size=(100, 333)).astype(np.float32)
    answers = []
    for way, extra in (("phases", []), ("whole", ["--time", str(tmp_path / "t.csv")])):
        name = f"bits_{way}_{'_'.join(flag.strip('-') for flag in flags)}"
        module = be_runtime.load_cuda_inline(name, source("arithmetic"), extra_cuda_cflags=[*flags, *extra])
        assert ("cudafe++" in (module.path.parent / "build.log").read_text()) == (way == "phases")
        norm = np.asarray(call(f"{name}.norm", jax.ShapeDtypeStruct((100,), jnp.float32), rows))
        answers.append((quotient(name, a, b).tobytes(), norm.tobytes()))
    assert answers[0] == answers[1]
