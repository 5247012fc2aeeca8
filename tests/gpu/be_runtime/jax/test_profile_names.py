"""Kernels in a profile of the GPU: the names of module and function, and the caller's file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import be_runtime
from tests.support.profiles import line_of, profile

SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void add_one(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
// @BE plus arg[n] ret[n] stream
void plus(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  int n = static_cast<int>(x.numel());
  add_one<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
"""


def test_a_profile_names_the_function_of_each_kernel(tmp_path: Path):
    module = be_runtime.load_cuda_inline("profiled", SOURCE)
    raw = be_runtime.cuda_kernel(
        "__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }",
        "twice",
        outs=lambda x: x,
        grid=1,
        block=64,
    )

    def step(x: jax.Array) -> Any:
        y = module.plus(x)
        return raw(y + 1)

    x = jnp.arange(64.0)
    compiled = jax.jit(step)
    text = compiled.lower(x).compile().as_text() or ""
    assert 'op_name="jit(step)' in text
    assert "/profiled.plus" in text
    assert "/twice" in text
    assert str(line_of(step, "module.plus(x)")) in text
    compiled(x).block_until_ready()
    found = profile(lambda: compiled(x), tmp_path)
    launched = [event for event in found.events if "hlo_op" in event.get("args", {})]
    operations = {event["name"].partition("(")[0]: event["args"]["hlo_op"].partition(".")[0] for event in launched}
    assert {name: operations.get(name) for name in ("add_one", "twice")} == {
        "add_one": "profiled_plus",
        "twice": "twice",
    }
    assert b"/profiled.plus" in found.programs
    assert Path(__file__).name.encode() in found.programs
