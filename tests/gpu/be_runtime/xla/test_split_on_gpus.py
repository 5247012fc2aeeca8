"""Calls over all devices of the machine: modules, raw and Numba kernels, sums of parts, state and scratch, threads."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime import CompiledModule, TransformError

DEVICES = len(jax.devices())
SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
#include "brainevent/state.h"

__global__ void sum_rows(const float* x, float* y, int64_t rows, int64_t n, float by) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  float sum = 0;
  for (int64_t i = 0; row < rows && i < n; ++i) y[row * n + i] = sum += by * x[row * n + i];
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
ROWS = P("x", None)


@pytest.fixture(scope="module", name="module")
def _module() -> CompiledModule:
    return be_runtime.load_cuda_inline("split_on_gpus", SOURCE)


def on_all(run: Callable[..., Any], kind: Any = AxisType.Auto) -> tuple[np.ndarray, list[str]]:
    """The result of a function of rows that are split over all devices, and the collectives of its program."""
    mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(kind,))
    x = jax.device_put(X, NamedSharding(mesh, ROWS))
    with jax.set_mesh(mesh) if kind == AxisType.Explicit else contextlib.nullcontext():
        compiled = jax.jit(run).lower(x).compile()
        collectives = re.findall(
            r" (all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\(", str(compiled.as_text())
        )
        return np.asarray(compiled(x)), collectives


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_parts_are_computed_alone(module: CompiledModule, kind: Any):
    found, collectives = on_all(module.cumsum, kind)
    np.testing.assert_allclose(found, np.cumsum(X, axis=1), rtol=1e-5)
    assert collectives == []
    found, collectives = on_all(module.halved, kind)
    np.testing.assert_array_equal(found, X / 2)
    assert collectives == []


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_parts_of_a_sum_are_added(module: CompiledModule, kind: Any):
    found, collectives = on_all(module.total, kind)
    np.testing.assert_allclose(found, X.sum(axis=0), rtol=1e-5)
    assert collectives == (["all-reduce"] if DEVICES > 1 else [])


def test_transformations_of_split_calls(module: CompiledModule):
    batch = np.stack([X, 2 * X, 3 * X])
    found, collectives = on_all(lambda x: jax.vmap(lambda by: module.cumsum(by * x))(jnp.arange(1.0, 4.0)))
    np.testing.assert_allclose(found, np.cumsum(batch, axis=2), rtol=1e-5)
    assert collectives == []
    found, collectives = on_all(lambda x: jax.lax.scan(lambda c, _: (module.halved(c), None), x, None, length=3)[0])
    np.testing.assert_array_equal(found, X / 8)
    assert collectives == []


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_raw_kernel_s_grid_follows_each_device(kind: Any):
    twice = be_runtime.cuda_kernel(
        RAW, "twice", grid="b", block="min(n,32)", signature="arg[b n] ret[b n] attr.n:int32 parallel[b]"
    )
    found, collectives = on_all(lambda x: twice(x, n=24), kind)
    np.testing.assert_array_equal(found, 2 * X)
    assert collectives == []


def test_a_numba_kernel_s_threads_follow_each_device():
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit  # type: ignore[untyped-decorator]
    def twice(x: Any, y: Any) -> None:
        i, j = cuda.grid(2)
        if i < y.shape[0] and j < y.shape[1]:
            y[i, j] = 2 * x[i, j]

    run = be_runtime.numba_cuda_kernel(twice, signature="arg[b n] ret[b n] parallel[b]", launch_dims=("b", "n"))
    found, collectives = on_all(run)
    np.testing.assert_array_equal(found, 2 * X)
    assert collectives == []


@pytest.mark.skipif(DEVICES == 1, reason="needs two devices")
def test_a_grid_that_python_computes_needs_the_shapes_of_one_device():
    twice = be_runtime.cuda_kernel(
        RAW, "twice", grid=lambda x: x.shape[0], block=32, signature="arg[b n] ret[b n] attr.n:int32 parallel[b]"
    )
    with pytest.raises(TransformError, match="twice has a launch that Python functions compute"):
        on_all(lambda x: twice(x, n=24))
    found, collectives = on_all(lambda x: twice(x, n=24), AxisType.Explicit)
    np.testing.assert_array_equal(found, 2 * X)
    assert collectives == []
    mesh = jax.make_mesh((DEVICES,), ("x",))
    shard: Any = jax.shard_map
    run = shard(lambda x: twice(x, n=24), mesh=mesh, in_specs=ROWS, out_specs=ROWS)
    np.testing.assert_array_equal(run(jax.device_put(X, NamedSharding(mesh, ROWS))), 2 * X)


def test_devices_are_called_at_once_from_several_threads(module: CompiledModule):
    """State and scratch memory on every device; thousands of calls, some in one program and some in many."""
    wrong: list[str] = []

    def work(device: Any, calls: int) -> None:
        x = jax.device_put(X, device)
        program = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, c: 2 * module.halved(c), x))
        wrong.extend(str(device) for _ in range(calls) if not np.array_equal(program(x), X))

    threads = [threading.Thread(target=work, args=(device, 50)) for device in jax.devices() * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(5):
        for device in jax.devices():
            work(device, 1)
    assert wrong == []
