"""One operation in C++ and in CUDA is called with arrays of either device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime
from tests.support.platforms import CPP, CUDA


def test_arrays_decide_which_code_runs():
    ops = be_runtime.load_inline("platforms_gpu", cpp=CPP, cuda=CUDA)
    ops.scale.defvjp(None, lambda x, g, *, by: (by * g,))
    assert [*ops.parts] == ["cpp", "cuda"]
    for device in (jax.devices("cpu")[0], jax.devices("gpu")[0]):
        x = jax.device_put(jnp.arange(1000.0), device)
        for call in (ops.scale, jax.jit(ops.scale)):
            y = call(x)
            assert y.devices() == {device}
            np.testing.assert_array_equal(y, 2 * np.arange(1000))
        np.testing.assert_array_equal(jax.grad(lambda x: ops.scale(x, by=3.0).sum())(x), np.full(1000, 3))
        np.testing.assert_array_equal(jax.vmap(ops.scale)(jnp.stack([x, x])), 2 * np.stack([np.arange(1000)] * 2))
