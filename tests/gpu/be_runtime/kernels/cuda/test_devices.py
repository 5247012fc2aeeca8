"""Every device of the process is served: in one sharded program, and each on its own."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
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


def raw() -> Any:
    add = be_runtime.cuda_kernel(SOURCE, "add", lambda x: x, grid=lambda x: (x.size + 127) // 128, block=128)
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
    cuda: Any = pytest.importorskip("numba.cuda")

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
