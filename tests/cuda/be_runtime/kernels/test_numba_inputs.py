"""What Numba makes of a kernel's inputs: read-only arrays, also of numbers; tests/gpu has the gaps of that check.

Tracing compiles, for an architecture that need not be here.
"""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, numba_cuda_kernel
from tests.support.kernel_calls import attributes, kernel_calls

pytest.importorskip(
    "tests.support.numba_kernels", reason="no Numba: pip install 'brainevent-toolchain[numba]'", exc_type=ImportError
)
from be_runtime.kernels.numba.gpu import compile_numba
from tests.support import numba_kernels
from tests.support.numba_kernels import cuda

X = np.zeros(4, np.float32)
OUT = jax.ShapeDtypeStruct((4,), np.float32)


def trace(kernel: Callable[..., None], *inputs: Any) -> None:
    jax.make_jaxpr(numba_cuda_kernel(cuda.jit(kernel), OUT, launch_dims=4))(*inputs)


def by_index(x, out):
    x[0] = 1


def by_ufunc(x, out):
    np.add(out, out, x)


def by_operator(x, out):
    x += out


def scaled(x, out):
    out[0] = x * 2


def by_atomic(x, out):
    cuda.atomic.max(x[1:], 0, 1)


@pytest.mark.parametrize(
    ("kernel", "value", "message"),
    [
        (by_index, X, "readonly(?s:.*)hint: an input can't be written"),
        (by_ufunc, X, "readonly(?s:.*)hint: an input can't be written"),
        (by_operator, X, r"hint: x \+= ... writes the input x: write to an output"),
        (scaled, 2.0, r"hint: x is a 0-dimensional array, as all numbers are: its value is x\[\(\)\]"),
    ],
)
def test_what_numba_refuses_has_a_hint(kernel: Callable[..., None], value: Any, message: str):
    with pytest.raises(BuildError, match=message):
        trace(kernel, value)


@pytest.mark.parametrize(
    ("kernel", "dtype", "message"),
    [
        (by_atomic, "float32", "the kernel by_atomic has an atomic operation on the input x"),
        (by_index, "float8_e5m2", r"input 0 is float8_e5m2\[4\]: Numba has no arrays of float8_e5m2"),
        (by_index, "int4", r"input 0 is int4\[4\]: Numba has no arrays of int4"),
    ],
)
def test_what_numba_would_let_pass_or_lacks_is_refused(kernel: Callable[..., None], dtype: str, message: str):
    with pytest.raises(ArgumentError, match=message):
        trace(kernel, X.astype(jax.numpy.dtype(dtype)))


def test_a_numba_kernel_compiles_once_for_a_cache(tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    compiled = Mock(wraps=compile_numba)
    case = numba_kernels.CASES["saxpy"]
    outs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.outs]

    def find_id() -> str:
        (call,) = kernel_calls(numba_cuda_kernel(case.kernel, outs, **case.launch), *case.inputs)
        return str(attributes(call)["kernel"])

    monkeypatch.setattr("be_runtime.kernels.numba.gpu.compile_numba", compiled)
    first = find_id()
    assert find_id() == first
    assert compiled.call_count == 1
    # A checkout of ours on another host has other times: the kernel is compiled anew, and the program is the same.
    monkeypatch.setattr("be_runtime.kernels.numba.gpu.own_code_digest", lambda: "another checkout")
    assert find_id() == first
    assert compiled.call_count == 2
