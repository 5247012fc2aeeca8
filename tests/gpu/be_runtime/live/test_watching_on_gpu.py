"""CUDA sources that are edited while a process runs: functions, programs, and names that XLA calls on a GPU."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime import RegistrationError

SOURCE = """#include "brainevent/common.h"
__global__ void kernel(const float* x, float* y, long n) {{
  long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = {by} * x[i];
}}
// @BE f arg[n] ret[n]:like(0) stream
void f(const BE::Tensor x, BE::Tensor y, int64_t stream) {{
  const long n = x.numel();
  kernel<<<(n + 255) / 256, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n);
}}
"""
X = jnp.arange(3.0)


@pytest.fixture(autouse=True)
def watched() -> Generator[None]:
    with be_runtime.watch(interval_s=1000):
        yield


def test_a_saved_file_and_programs_of_before(tmp_path: Path):
    path = tmp_path / "live_gpu.cu"
    path.write_text(SOURCE.format(by=2))
    module = be_runtime.load_cuda_file(path)
    jitted = jax.jit(module.f)
    assert module.f(X).tolist() == jitted(X).tolist() == [0, 2, 4]
    path.write_text(SOURCE.format(by=3))
    assert module.f(X).tolist() == [0, 3, 6]
    assert jitted(X).tolist() == [0, 2, 4]
    path.write_text(SOURCE.format(by="no_such_name"))
    with pytest.warns(UserWarning, match="the code before runs"):
        assert module.f(X).tolist() == [0, 3, 6]


def test_a_name_follows_until_a_program_calls_it():
    """In a loop, and so perhaps in a graph, where XLA calls the handler once and replays what it recorded."""
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)

    def by_name(x: jax.Array) -> jax.Array:
        called: jax.Array = jax.lax.fori_loop(0, 4, lambda _, y: jax.ffi.ffi_call("live_gpu_named.f", struct)(y), x)
        return called

    be_runtime.load_cuda_inline("live_gpu_named", SOURCE.format(by=2))
    be_runtime.load_cuda_inline("live_gpu_named", SOURCE.format(by=3))
    program = jax.jit(by_name)
    for _ in range(3):
        assert program(X).tolist() == [0, 81, 162]
    with pytest.raises(RegistrationError, match=r"'live_gpu_named\.f' was given to jax\.ffi\.ffi_call"):
        be_runtime.load_cuda_inline("live_gpu_named", SOURCE.format(by=5))
    assert program(X).tolist() == [0, 81, 162]
