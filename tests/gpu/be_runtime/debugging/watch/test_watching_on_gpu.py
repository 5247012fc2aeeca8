"""CUDA sources that are edited while a process runs: functions and programs."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime

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
    with pytest.warns(UserWarning, match="the previous code runs"):
        assert module.f(X).tolist() == [0, 3, 6]
