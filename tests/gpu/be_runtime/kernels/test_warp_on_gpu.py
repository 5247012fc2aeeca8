"""Warp's kernels on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import warp_kernel


def test_a_warp_kernel_on_the_device():
    pytest.importorskip("warp")
    from tests.support import warp_kernels

    run = warp_kernel(warp_kernels.scale, jax.ShapeDtypeStruct((3,), jnp.float32))
    result = jax.jit(lambda x: run(x, 2.0))(jax.device_put(jnp.arange(3.0), jax.devices("gpu")[0]))
    assert result.devices() == {jax.devices("gpu")[0]}
    np.testing.assert_array_equal(result, [0, 2, 4])
