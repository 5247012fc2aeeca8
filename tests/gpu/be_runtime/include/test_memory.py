"""Scratch memory and state on a GPU: within CUDA graphs, from XLA's own memory, a handle for each device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import KERNELS, run_json, source

CALLS, RUNS, SIZE = 200, 10, 1 << 18
FLAGS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE,CONDITIONAL --xla_gpu_graph_min_graph_size=1"
PROGRAM = """
import ctypes, gc, json, pathlib, sys

import jax, jax.numpy as jnp, numpy as np

import be_runtime

calls, runs, size = map(int, sys.argv[2:])
module = be_runtime.load_cuda_inline("memory", pathlib.Path(sys.argv[1]).read_text())
library = ctypes.CDLL(str(module.path))
library.memory_counter.restype = ctypes.c_longlong
NAMES = ("calls", "recorded", "taken", "states", "states_gone", "tables", "tables_gone")
counters = lambda: {name: library.memory_counter(i) for i, name in enumerate(NAMES)}
x = jnp.arange(size, dtype=jnp.float32)
like = jax.ShapeDtypeStruct(x.shape, x.dtype)
scratch = jax.ShapeDtypeStruct((size * 4,), jnp.uint8)
STEPS = {
    "declared": lambda x: jax.ffi.ffi_call("memory.declared", (like, scratch))(x)[0],
    "asked": lambda x: jax.ffi.ffi_call("memory.asked", like)(x, bytes=np.int64(64 << 20)),
    "planned": lambda x: jax.ffi.ffi_call("memory.planned", like)(x, added=np.float32(1)),
}

def measure(step):
    def chain(x):
        for _ in range(calls):
            x = step(x)
        return x

    run = jax.jit(chain)
    before = counters()
    temp = run.lower(x).compile().memory_analysis().temp_size_in_bytes
    wrong = sum(not np.array_equal(run(x + i), np.arange(size) + i + calls) for i in range(runs))
    del run
    jax.clear_caches()
    gc.collect()
    return {"wrong": wrong, "temp": temp, **{name: value - before[name] for name, value in counters().items()}}

found = {name: measure(step) for name, step in STEPS.items()}
found["peak"] = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
print(json.dumps(found))
"""
GEMM = """
import ctypes, json, pathlib, sys

import jax, jax.numpy as jnp, numpy as np

import be_runtime

module = be_runtime.load_cuda_inline("gemm_plan", pathlib.Path(sys.argv[1]).read_text(), extra_ldflags=["-lcublas"])
library = ctypes.CDLL(str(module.path))
rotation = jnp.array([[0.0, -1.0], [1.0, 0.0]], jnp.float32)
outs = (jax.ShapeDtypeStruct((2, 2), jnp.float32), jax.ShapeDtypeStruct((32 << 20,), jnp.uint8))

@jax.jit
def powers(m):
    power = m
    for _ in range(9):
        power = jax.ffi.ffi_call("gemm_plan.matmul", outs)(power, m)[0]
    return power

wrong = sum(not np.allclose(powers(rotation), np.linalg.matrix_power(rotation, 10), atol=1e-6) for _ in range(20))
print(json.dumps({"wrong": wrong, "handles": library.count_handles(), "recorded": library.count_recorded()}))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    arguments = map(str, (CALLS, RUNS, SIZE))
    preallocated = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.05"}
    return run_json(PROGRAM, str(KERNELS / "memory.cu"), *arguments, XLA_FLAGS=FLAGS, **preallocated)


def test_declared_memory_is_recorded_and_shared(found: Any):
    declared = found["declared"]
    assert declared["wrong"] == 0
    assert declared["temp"] < 4 * SIZE * 4, "200 calls of a megabyte share one buffer"
    assert declared["recorded"] > 0
    assert declared["calls"] < CALLS * RUNS


def test_memory_that_is_asked_for_is_xlas_and_never_recorded(found: Any):
    asked = found["asked"]
    assert (asked["wrong"], asked["recorded"], asked["calls"]) == (0, 0, CALLS * RUNS)
    by_malloc = CALLS * RUNS * (64 << 20)
    assert abs(asked["taken"]) < by_malloc / 20, "no cudaMalloc in a call; other processes may take memory meanwhile"
    assert found["peak"] > 64 << 20


def test_state_is_recorded_and_deleted_with_its_program(found: Any):
    planned = found["planned"]
    assert planned["wrong"] == 0
    assert planned["recorded"] > 0
    assert planned["states"] == planned["states_gone"] >= CALLS
    assert 0 < planned["tables"] == planned["tables_gone"] <= planned["states"]


def test_a_cublas_handle_within_a_graph():
    gemm = run_json(GEMM, str(KERNELS / "gemm_plan.cu"), XLA_FLAGS=FLAGS)
    assert gemm["wrong"] == 0
    assert gemm["recorded"] > 0
    assert gemm["handles"] == 9, "one for each call site, on one device"


@pytest.fixture(scope="module")
def _module() -> None:
    be_runtime.load_cuda_inline("memory", source("memory"))


def call(function: str, x: Any, **attrs: Any) -> Any:
    return jax.ffi.ffi_call(f"memory.{function}", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **attrs)


@pytest.mark.usefixtures("_module")
def test_what_can_not_be_had_is_xlas_error():
    x = jnp.ones(8, jnp.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"memory\.asked: allocate of 70368744177664 bytes: .+"):
        call("asked", x, bytes=np.int64(2**46)).block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"memory\.asked: allocate of -1 bytes"):
        call("asked", x, bytes=np.int64(-1)).block_until_ready()
    np.testing.assert_array_equal(call("asked", x, bytes=np.int64(0)), 2)
    # A constructor that throws fails the compilation.
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"memory\.planned: .*adds nothing"):
        jax.jit(lambda x: call("planned", x, added=np.float32(0))).lower(jnp.ones(8)).compile()


@pytest.mark.usefixtures("_module")
def test_each_device_has_its_own_object():
    devices = jax.devices("gpu")
    if len(devices) < 2:
        pytest.skip("one device")
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    mapped = jax.shard_map(lambda x: call("planned", x, added=np.float32(3)), mesh=mesh, in_specs=spec, out_specs=spec)
    x = np.arange(1024 * len(devices), dtype=np.float32)
    for turn in range(5):
        np.testing.assert_array_equal(jax.jit(mapped)(x + turn), x + turn + 3)
