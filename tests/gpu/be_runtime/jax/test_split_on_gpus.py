"""Calls over all devices of the machine: modules, raw and Numba kernels, sums of parts, state, scratch memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime import CompiledModule, TransformError
from tests.support.jax_names import make_mesh

DEVICES = len(jax.devices())
SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
#include "brainevent/state.h"

__global__ void sum_rows(const float* x, float* y, int64_t rows, int64_t n, float by) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  float sum = 0;
  for (int64_t i = 0; row < rows && i < n; ++i) {
    y[row * n + i] = sum += by * x[row * n + i];
  }
}

// @BE cumsum arg[b n] ret[b n] attr.by:float32=1 stream parallel[b]
void cumsum(const BE::Tensor x, BE::Tensor y, float by, int64_t stream) {
  sum_rows<<<(x.size(0) + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                                   x.size(0), x.size(1), by);
}

__global__ void sum_columns(const float* x, float* y, int64_t rows, int64_t n) {
  const int64_t column = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  float sum = 0;
  for (int64_t i = 0; column < n && i < rows; ++i) sum += x[i * n + column];
  if (column < n) y[column] = sum;
}

// @BE total arg[b n] ret[n] stream reduce[b]
void total(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  sum_columns<<<(x.size(1) + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                                      x.size(0), x.size(1));
}

struct Half { float factor = 0.5f; };

// @BE halved arg[b n] ret[b n] scratch[4*b*n] state stream parallel[b]
void halved(const BE::Tensor x, BE::Tensor y, BE::Workspace room, const BE::State<Half>& half, int64_t stream) {
  BE_CHECK(room.size() == x.nbytes());
  BE_CUDA_CHECK(cudaMemcpyAsync(room.data(), x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToDevice, (cudaStream_t)stream));
  sum_rows<<<(x.numel() + 127) / 128, 128, 0, (cudaStream_t)stream>>>(room.data_as<float>(), y.data_ptr<float>(),
                                                                   x.numel(), 1, half->factor);
}
"""
RAW = """
__global__ void twice(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = 2 * x[blockIdx.x * n + i];
}"""
X = np.arange(32 * 24, dtype=np.float32).reshape(32, 24) / 100
ROWS, WHOLE = P("x", None), P()
KINDS = ("automatic", "explicit", "manual")


@pytest.fixture(scope="module", name="module")
def _module() -> CompiledModule:
    return be_runtime.load_cuda_inline("split_on_gpus", SOURCE)


def on_all(run: Callable[..., Any], kind: str = "automatic", out: P = ROWS) -> tuple[np.ndarray, list[str]]:
    """The result of a function of rows that are split over all devices, and the collectives of its program.

    In manual meshes, the function gets the rows of one device.
    """
    mesh = make_mesh((DEVICES,), "x", kind)
    x = jax.device_put(X, NamedSharding(mesh, ROWS))
    if kind == "manual":
        shard: Any = jax.shard_map
        run = shard(run, mesh=mesh, in_specs=ROWS, out_specs=out)
    with jax.set_mesh(mesh) if kind == "explicit" else contextlib.nullcontext():
        compiled = jax.jit(run).lower(x).compile()
        text = str(compiled.as_text())
        result = compiled(x)
    assert len(result.sharding.device_set) == DEVICES
    return np.asarray(result), re.findall(
        r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(", text
    )


def check_alone(run: Callable[..., Any], kind: str, expected: Any) -> None:
    """Whether a function is right, and its devices exchange nothing."""
    found, collectives = on_all(run, kind)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert collectives == []


def raw(grid: Any, block: Any) -> Callable[..., Any]:
    signature = "arg[b n] ret[b n] attr.n:int32 parallel[b]"
    twice = be_runtime.cuda_kernel(RAW, "twice", grid=grid, block=block, signature=signature)
    return lambda x: twice(x, n=24)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_computed_alone(module: CompiledModule, kind: str):
    """Also with state and scratch memory, in a loop, and by a raw kernel, whose grid follows each device."""
    check_alone(module.cumsum, kind, np.cumsum(X, axis=1))
    check_alone(module.halved, kind, X / 2)
    check_alone(two_steps(module.halved), kind, X / 4)
    check_alone(raw("b", "min(n,32)"), kind, 2 * X)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_sum_are_added(module: CompiledModule, kind: str):
    def total(x: Any) -> Any:
        return jax.lax.psum(module.total(x), "x") if kind == "manual" else module.total(x)

    found, collectives = on_all(total, kind, WHOLE)
    np.testing.assert_allclose(found, X.sum(axis=0), rtol=1e-5)
    assert collectives == (["all-reduce"] if DEVICES > 1 else [])


def two_steps(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jax.lax.scan(lambda c, _: (function(c), None), x, None, length=2)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_numba_kernel_s_threads_follow_each_device(kind: str):
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit  # type: ignore[untyped-decorator]
    def twice(x: Any, y: Any) -> None:
        i, j = cuda.grid(2)
        if i < y.shape[0] and j < y.shape[1]:
            y[i, j] = 2 * x[i, j]

    run = be_runtime.numba_cuda_kernel(twice, signature="arg[b n] ret[b n] parallel[b]", launch_dims=("b", "n"))
    check_alone(run, kind, 2 * X)


@pytest.mark.skipif(DEVICES == 1, reason="needs two devices")
def test_a_grid_that_python_computes_needs_the_shapes_of_one_device():
    twice = raw(lambda x: x.shape[0], 32)
    with pytest.raises(TransformError, match="twice has a launch that Python functions compute"):
        on_all(twice)
    check_alone(twice, "explicit", 2 * X)
    check_alone(twice, "manual", 2 * X)


def test_devices_are_called_at_once_from_several_threads(module: CompiledModule):
    """State and scratch memory on every device; thousands of calls, some in one program and some in many."""
    wrong: list[str] = []

    def work(device: Any, calls: int) -> None:
        x = jax.device_put(X, device)
        program = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, c: 2 * module.halved(c), x))
        wrong.extend(str(device) for _ in range(calls) if not np.array_equal(program(x), X))

    devices = jax.devices() * 2
    with ThreadPoolExecutor(len(devices)) as pool:
        list(pool.map(work, devices, [50] * len(devices)))
    for _ in range(5):
        for device in jax.devices():
            work(device, 1)
    assert wrong == []
