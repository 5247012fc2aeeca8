"""What CUDA or the device refuses: when it is said, and that the program can go on."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.kernels.launcher import Kernel, KernelImage, choose_archs
from be_runtime.load.process import PROCESS
from tests.support.cuda import launch_once

SOURCE = """
__global__ void copy(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}
"""
SIZE = 2**22
"""Threads that no GPU runs at once."""


@pytest.fixture
def x() -> Any:
    """On the device, whose context is there from then on: that is where kernels are loaded before they run."""
    return jnp.arange(SIZE, dtype=jnp.float32).block_until_ready()


def test_a_failed_launch_names_the_kernel_and_how_it_was_launched(x: Any):
    cuda: Any = pytest.importorskip("numba.cuda")

    @cuda.jit
    def rotate(x, out):
        i = cuda.grid(1)
        out[i] = x[i]
        cuda.cg.this_grid().sync()
        out[i] = x[(i + 1) % x.size]

    def rotated(size: int) -> Any:
        outs = jax.ShapeDtypeStruct((size,), np.float32)
        return jax.jit(be_runtime.numba_cuda_kernel(rotate, outs, grid=size // 128, block=128))

    too_large = rotated(SIZE).lower(x).compile()
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(too_large(x))
    blocks = SIZE // 128
    assert "rotate: the launch failed with CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" in str(caught.value)
    assert f"grid ({blocks}, 1, 1), block (128, 1, 1), shared_mem 0, cluster (1, 1, 1)" in str(caught.value)
    assert "a cooperative grid must fit on the device as a whole" in str(caught.value)
    small = x[:1024]
    np.testing.assert_array_equal(rotated(1024)(small), np.roll(small, -1))


def test_too_much_shared_memory_is_said_when_the_program_is_compiled(x: Any):
    copy = be_runtime.cuda_kernel(SOURCE, "copy", lambda x: x, grid=SIZE // 256, block=256, shared_mem=250_000)
    lowered = jax.jit(copy).lower(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"copy: shared_mem=250000 is too much.*ask for at most"):
        lowered.compile()


def test_code_is_loaded_when_the_program_is_compiled(x: Any):
    """Code that the driver can't load is found then, and not at a launch, which a CUDA graph may be recording."""
    (arch, *_) = choose_archs(None, PROCESS.session())
    kernel = Kernel("e" * 32, "broken", (KernelImage(arch, "broken", b"no machine code, and none is missing"),))

    lowered = jax.jit(lambda x: launch_once(kernel, x)).lower(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"broken: the driver does not load it: CUDA_ERROR_"):
        lowered.compile()
