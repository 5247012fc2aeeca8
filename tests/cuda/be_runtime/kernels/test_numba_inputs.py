"""What Numba makes of a kernel's inputs: read-only arrays, also of numbers; tests/gpu has the gaps of that check.

Tracing compiles, for an architecture that need not be here.
"""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, numba_cuda_kernel
from tests.support.cuda import run_json
from tests.support.fresh_environments import NO_INDEX, ROOT
from tests.support.kernel_calls import attributes, kernel_calls

pytest.importorskip(
    "tests.support.numba_kernels", reason="no Numba: pip install 'brainevent-toolchain[numba]'", exc_type=ImportError
)
from numba import cuda

from be_runtime.kernels.numba.gpu import compile_numba
from tests.support import numba_kernels

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


MLIR = """
import jax, json, sys
from numba_cuda_mlir import cuda
import be_runtime
@cuda.jit(device=True)
def twice(value):
    return 2 * value
@cuda.jit
def scale(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = twice(x[i])
@cuda.jit
def writes(x, out):
    x[0] = out[0]
x = jax.ShapeDtypeStruct((2, 8), "float32")
run = be_runtime.numba_cuda_kernel(scale, signature="arg[... n] ret[... n]", launch_dims="n")
told = [list(jax.eval_shape(jax.vmap(run), x).shape)]
try:
    be_runtime.numba_cuda_kernel(writes, x, launch_dims=1)(jax.numpy.ones((2, 8)))
except be_runtime.BuildError as error:
    told += [error.hints[0], "numba" in sys.modules]
try:
    be_runtime.numba_cuda_kernel(print, x, launch_dims=1)
except TypeError as error:
    told.append(str(error))
print(json.dumps(told))
"""


@pytest.mark.full
def test_kernels_of_numba_cuda_mlir_compile_without_numba(tmp_path: Path):
    """The successor of numba-cuda in folders of its own, for an architecture that need not be here."""
    site = tmp_path / "site-packages"
    command = (sys.executable, "-m", "pip", "install", "-q", "--target", str(site), "--no-deps")
    packages = ("numba-cuda-mlir==0.6.0", "cuda-core", "cuda-bindings", "cuda-pathfinder")
    done = subprocess.run((*command, *packages), capture_output=True, text=True, check=False)
    if any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip("no package index")
    assert done.returncode == 0, done.stderr
    variables = {"PYTHONPATH": f"{ROOT}:{site}", "BE_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    for _ in range(2):
        shape, hint, has_numba, refusal = run_json(MLIR, BE_COMPUTE_CAPABILITIES="sm_90", **variables)
        assert shape == [2, 8]
        assert hint.startswith("an input can't be written")
        assert refusal.startswith("kernel must be a function decorated with @cuda.jit, not <built-in function print>")
        assert not has_numba
    assert len(list((tmp_path / "cache" / "kernels-v1").glob("*/*/*/manifest.json"))) == 1, "found the second time"
