"""Kernels of FlashInfer and TileLang, built by `published.py` on a machine that needs no GPU."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.requirements import OPTIONAL

tvm_ffi = pytest.importorskip("tvm_ffi", reason=f"{OPTIONAL}apache-tvm-ffi")
FOLDER = Path(os.environ.get("BE_PUBLISHED", "published"))


def library(name: str) -> Path:
    """A library of the folder."""
    if not (FOLDER / name).is_file():
        pytest.skip(f"{OPTIONAL}BE_PUBLISHED, a folder that published.py has filled")
    return FOLDER / name


@pytest.fixture(scope="module")
def norms() -> Any:
    declared = {
        "rmsnorm": "ret[m n] arg[m n] arg[n] attr.eps:float64=1e-6 =false",
        "fused_add_rmsnorm": "inout[m n] inout[m n] arg[n] attr.eps:float64=1e-6 =false",
    }
    return be_runtime.load_tvm_ffi(library("flashinfer_norm.so"), declared, platform="cuda")


def rms(x: Any, weight: Any) -> Any:
    """The root-mean-square norm of each row."""
    wide = np.asarray(x, np.float32)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * np.asarray(weight, np.float32)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_flashinfers_norms_run_in_jitted_programs(norms: Any, dtype: Any) -> None:
    x = jax.random.normal(jax.random.key(0), (64, 512), dtype)
    weight = jax.random.normal(jax.random.key(1), (512,), dtype)
    found = jax.jit(lambda x, w: norms.rmsnorm(norms.rmsnorm(x, w), w))(x, weight)
    first = jnp.asarray(rms(x, weight), dtype)
    np.testing.assert_allclose(np.asarray(found, np.float32), rms(first, weight), rtol=2e-2, atol=2e-2)

    added, residual = jax.jit(norms.fused_add_rmsnorm)(x, x, weight)
    np.testing.assert_allclose(np.asarray(residual, np.float32), 2 * np.asarray(x, np.float32), rtol=1e-2)
    np.testing.assert_allclose(np.asarray(added, np.float32), rms(residual, weight), rtol=2e-2, atol=2e-2)


def test_flashinfers_own_error_arrives(norms: Any) -> None:
    with pytest.raises(Exception, match="failed to dispatch data type"):
        norms.rmsnorm(jnp.ones((2, 4), jnp.float32), jnp.ones(4, jnp.float32)).block_until_ready()


def test_a_function_that_takes_objects_says_so_and_is_called_with_objects() -> None:
    declared = {"layernorm": "ret[m n]:bfloat16 arg[m n]:bfloat16 arg[n]:float32 arg[n]:float32 =1e-6"}
    path = library("flashinfer_norm.so")
    views = be_runtime.load_tvm_ffi(path, declared, platform="cuda", name="views")
    objects = be_runtime.load_tvm_ffi(path, declared, platform="cuda", name="objects", owned=True)
    x = jax.random.normal(jax.random.key(0), (8, 256), jnp.bfloat16)
    with pytest.raises(Exception, match="owned=True"):
        views.layernorm(x, jnp.ones(256), jnp.zeros(256)).block_until_ready()
    found = objects.layernorm(x, jnp.ones(256), jnp.zeros(256))
    wide = np.asarray(x, np.float32)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=2e-2, atol=2e-2)


def test_tilelangs_kernel_runs_in_a_jitted_program() -> None:
    path = library("tilelang_rows.so")
    try:
        ctypes.CDLL(str(path.with_name("libtvm_runtime.so")), ctypes.RTLD_GLOBAL)
    except OSError as error:
        pytest.skip(f"{OPTIONAL}the release of apache-tvm-ffi that TileLang's run-time library needs: {error}")
    function = tvm_ffi.load_module(str(path)).get_function("scale_rows")
    declared = "arg[64 256]:float32 arg[256]:float32 ret[64 256]:float32"
    scale = be_runtime.tvm_ffi_function(function, declared, platform="cuda")
    x, w = jnp.arange(64 * 256, dtype=jnp.float32).reshape(64, 256), jnp.arange(256, dtype=jnp.float32)
    found = jax.jit(lambda x, w: scale(scale(x, w), w))(x, w)
    np.testing.assert_array_equal(found, x * w * w)
