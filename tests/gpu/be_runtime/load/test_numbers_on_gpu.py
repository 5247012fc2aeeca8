"""Numbers that change from call to call, which kernels read from device memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support import cuda


@pytest.mark.parametrize("allow_cuda_graph", [False, True])
def test_each_value_reaches_the_kernel_without_a_new_trace(allow_cuda_graph: bool):
    prefix = f"numbers_{allow_cuda_graph}"
    options: Any = {"allow_cuda_graph": allow_cuda_graph, "target_prefix": prefix}
    step = be_runtime.load_cuda_inline("numbers", cuda.source("numbers"), **options).step
    p, g, traces = jnp.ones(1000), jnp.arange(1000.0), 0

    @jax.jit
    def run(p: Any, lr: Any) -> Any:
        nonlocal traces
        traces += 1
        return jax.lax.fori_loop(0, 3, lambda t, p: step(step(p, g, lr=lr, t=t), g, t=0), p)

    for lr in (0.25, 0.5, 1.0, 2.0):
        np.testing.assert_allclose(run(p, lr), p - 3 * (lr + 0.5) * g - 3, rtol=1e-6)
    assert traces == 1
