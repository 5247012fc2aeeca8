"""Tuning on a GPU: the faster kernel wins with a flushed cache, a wrong one is rejected, the choice is kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import be_runtime

KERNEL = r"""
__global__ void fill(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = WRONG + 2 * x[i];
}
"""
X = jnp.arange(float(1 << 20)) % 8
CONFIGS = [{"blocks": 1}, {"blocks": 512}, {"blocks": 512, "wrong": 1}, {"blocks": 1 << 31}]


def op(blocks: int, wrong: int = 0) -> Any:
    flags = [f"-DWRONG={wrong}"]
    kernel = be_runtime.cuda_kernel(KERNEL, "fill", outs=lambda x: x, grid=blocks, block=256, extra_cuda_cflags=flags)
    return lambda x: kernel(x, n=x.size)


def test_the_faster_kernel_is_chosen_and_kept():
    tuned = be_runtime.autotune(op, CONFIGS, [X], name="fill_on_gpu")
    (trials,) = tuned.results
    assert tuned.config(X) == {"blocks": 512}
    slow, fast, wrong, impossible = trials.trials
    assert slow.cold_us is not None
    assert fast.cold_us is not None
    assert fast.warm_us is not None
    assert fast.cold_us < slow.cold_us / 4
    assert "result 0 at (0,)" in wrong.rejected
    assert impossible.rejected
    assert jax.jit(tuned)(X)[3] == 6
    again = be_runtime.autotune(op, CONFIGS, [X], name="fill_on_gpu")
    assert again.config(X) == {"blocks": 512}
    assert len(again.results) == 0, "nothing is timed"
