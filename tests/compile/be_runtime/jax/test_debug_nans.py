"""Kernels under ``jax_debug_nans`` and ``jax_debug_infs``: a FloatingPointError, as from ``jax.ffi.ffi_call``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime

SOURCE = """
#include "brainevent/common.h"
#include <cmath>
#include <cstring>
// @BE inverse arg[n]:float32 ret[n]:float32 scratch[4*n]
void inverse(const BE::Tensor x, BE::Tensor y, BE::Workspace scratch) {
  memset(scratch.data(), 0xFF, 4 * x.numel());  // the bits of NaN
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = x.at<float>(i) < 0 ? NAN : 1 / x.at<float>(i);
}
// @BE inverse_bwd arg[n]:float32 arg[n]:float32 ret[n]:float32
void inverse_bwd(const BE::Tensor x, const BE::Tensor g, BE::Tensor gx) {
  for (int64_t i = 0; i < x.numel(); ++i)
    gx.at<float>(i) = (x.at<float>(i) < 0 ? NAN : -1) * g.at<float>(i) / (x.at<float>(i) * x.at<float>(i));
}
"""
FINE = np.array([1, 4], np.float32)
FAULTY = {"nans": np.array([-1, 4], np.float32), "infs": np.array([0, 4], np.float32)}


@pytest.fixture(scope="module")
def inverse() -> Any:
    return be_runtime.load_cpp_inline("debug_nans", SOURCE).inverse


def gradient(inverse: Any, x: Any) -> Any:
    differentiable = inverse.with_options()
    differentiable.defvjp(None, "inverse_bwd")
    return jax.grad(lambda x: differentiable(x).sum())(x)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "eager": lambda inverse, x: inverse(x),
    "jitted": lambda inverse, x: jax.jit(inverse)(x),
    "in a program": lambda inverse, x: jax.jit(lambda x: inverse(x + 1 - 1) * 2)(x),
    "gradient": gradient,
    "jitted gradient": lambda inverse, x: jax.jit(lambda x: gradient(inverse, x))(x),
}


@pytest.mark.parametrize("kind", ["nans", "infs"])
def test_a_value_that_is_no_number_is_an_error(inverse: Any, kind: str):
    switch, other = (jax.debug_nans, jax.debug_infs)[:: 1 if kind == "nans" else -1]
    with switch(True):
        for call in CALLS.values():
            jax.block_until_ready(call(inverse, FINE))
            with pytest.raises(FloatingPointError, match=rf"^invalid value .{kind[:3]}. encountered in debug_nans.inv"):
                call(inverse, FAULTY[kind])
    with other(True):
        assert not np.isfinite(inverse(FAULTY[kind])[0]), "the other setting stays off"


def test_kernels_of_other_kinds_too():
    numba = pytest.importorskip("numba")

    def logs(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = np.log(x[i])

    call = jax.jit(be_runtime.numba_kernel(numba.njit(logs), outs=jax.ShapeDtypeStruct((2,), np.float32)))
    with jax.debug_nans(True):
        jax.block_until_ready(call(FINE))
        with pytest.raises(FloatingPointError, match="logs"):
            call(FAULTY["nans"])
