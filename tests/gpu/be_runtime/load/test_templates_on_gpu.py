"""Instances of a template, chosen by the dtype of a call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support import cuda


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_each_dtype_has_its_instance(dtype: str):
    add = jax.jit(be_runtime.load_cuda_inline("templates", cuda.source("templates")).add)
    x = jnp.arange(1000).astype(dtype) % 100
    sums = jax.vmap(add)(jnp.stack([x, x]), jnp.stack([x, 2 * x]))
    assert sums.dtype == dtype
    np.testing.assert_array_equal(sums.astype(np.float32), np.stack([2 * x, 3 * x]).astype(np.float32))
