"""Launches on every device, from many threads, of many kernels, and in CUDA graphs."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import run_json
from tests.support.jax_names import shard_map
from tests.support.requirements import OPTIONAL, device_count

# A launch of Numba's own is small, and Numba warns of it; under pytest a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size")

SIZE = 1000
SOURCE = """
__global__ void add(const float* x, float* y, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + by;
}
"""


def adder() -> Any:
    return be_runtime.cuda_kernel(SOURCE, "add", lambda x: x, grid=lambda x: (x.size + 127) // 128, block=128)


def raw() -> Any:
    add = adder()
    return lambda x: add(x, by=3, n=x.size)


def numba() -> Any:
    outs = jax.ShapeDtypeStruct((SIZE,), np.float32)
    return be_runtime.numba_cuda_kernel(_numba_add(), outs, launch_dims=SIZE)


def python(*, graph: bool = False) -> Any:
    add = _numba_add()

    def launch(x: Any, out: Any, stream: Any) -> None:
        add[8, 128, stream](x, out)

    return be_runtime.numba_cuda_callable(launch, jax.ShapeDtypeStruct((SIZE,), np.float32), graph=graph)


def recorded_python() -> Any:
    return python(graph=True)


def _numba_add() -> Any:
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + 3

    return add


MAKERS: list[Callable[[], Any]] = [raw, numba, python, recorded_python]


@pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")
@pytest.mark.parametrize("make", MAKERS)
def test_each_device_is_served(make: Callable[[], Any]):
    """The last device first, so that nothing is there yet that the first one brought; then all in one program."""
    devices = jax.devices("gpu")
    function, x = make(), np.arange(SIZE, dtype=np.float32)
    run = jax.jit(function)
    for device in reversed(devices):
        out = run(jax.device_put(x, device))
        assert out.devices() == {device}
        np.testing.assert_array_equal(out, x + 3)
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    run = jax.jit(shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))
    for turn in range(20):
        x = np.arange(SIZE * len(devices), dtype=np.float32) + turn
        np.testing.assert_array_equal(run(x), x + 3)


def test_threads_launch_at_once():
    add = adder()
    run = jax.jit(lambda x, by: jax.lax.switch(by, [lambda x, b=b: add(x, by=b, n=x.size) for b in range(4)], x))
    x = np.arange(1000, dtype=np.float32)

    def work(number: int) -> bool:
        return all(np.array_equal(np.asarray(run(x, number % 4)), x + number % 4) for _ in range(50))

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(12)))


def test_threads_make_one_kernel_at_once():
    """The first use of a kernel, in many threads, compiles and loads it once."""
    source = SOURCE.replace("+ by", "+ 2 * by")
    add = be_runtime.cuda_kernel(source, "add", lambda x: x, grid=8, block=128)
    start = threading.Barrier(8)

    def work(_number: int) -> np.ndarray:
        start.wait()
        return np.asarray(add(np.zeros(1000, np.float32), by=1, n=1000))

    with ThreadPoolExecutor(8) as pool:
        assert all((out == 2).all() for out in pool.map(work, range(8)))


def test_a_thousand_kernels_in_one_process():
    count = 1000
    source = "template <int N> __global__ void add(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + N; }"
    functions = [be_runtime.cuda_kernel(source, f"add<{n}>", lambda x: x, grid=1, block=8) for n in range(count)]

    def chain(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    out = np.asarray(jax.jit(chain)(jnp.zeros(8)))
    np.testing.assert_array_equal(out, np.full(8, count * (count - 1) / 2))


GRAPHS = """
import json, pathlib, sys, tempfile
import jax, jax.numpy as jnp, numpy as np
import be_runtime
from tests.support.profiles import profile

add = be_runtime.cuda_kernel(sys.argv[1], "add", lambda x: x, grid=8, block=128)

def chain(x):
    for n in range(20):
        x = add(x, by=n, n=1000)
    return x

def loop(x):
    return jax.lax.fori_loop(0, 20, lambda _, x: add(x, by=2, n=1000), x)

wrong = 0
for function, added in ((chain, 190), (loop, 40)):
    run = jax.jit(function)
    for i in range(20):
        x = jnp.arange(1000.0) + i
        wrong += not np.array_equal(np.asarray(run(x)), np.arange(1000.0) + i + added)
run = jax.jit(chain)
run(x).block_until_ready()
with tempfile.TemporaryDirectory() as folder:
    names = [event.get("name", "") for event in profile(lambda: run(x), pathlib.Path(folder)).events]
print(json.dumps({"wrong": wrong, "is_recorded": any("GraphLaunch" in name for name in names)}))
"""


@pytest.mark.parametrize("is_recorded", [True, False])
def test_results_are_right_with_and_without_graphs(is_recorded: bool):
    flags = (
        "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL,WHILE --xla_gpu_graph_min_graph_size=1"
        if is_recorded
        else "--xla_gpu_enable_command_buffer="
    )
    assert run_json(GRAPHS, SOURCE, XLA_FLAGS=flags) == {"wrong": 0, "is_recorded": is_recorded}
