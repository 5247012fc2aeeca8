"""Kernels of numba-cuda-mlir, the successor of numba-cuda: they compile without a GPU and without Numba."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import BuildError, numba_cuda_callable, numba_cuda_kernel
from tests.support.cuda import run_json
from tests.support.requirements import OPTIONAL

cuda: Any = pytest.importorskip("numba_cuda_mlir.cuda", reason=f"{OPTIONAL}numba-cuda-mlir", exc_type=ImportError)

X = np.zeros(4, np.float32)

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
x = jax.ShapeDtypeStruct((2, 8), "float32")
run = be_runtime.numba_cuda_kernel(scale, signature="arg[... n] ret[... n]", launch_dims="n")
told = [list(jax.eval_shape(jax.vmap(run), x).shape), "numba" in sys.modules]
print(json.dumps(told))
"""


def test_kernels_of_numba_cuda_mlir_compile_without_numba(tmp_path: Path):
    for _ in range(2):
        told = run_json(MLIR, BE_COMPUTE_CAPABILITIES="sm_90", BE_CACHE_DIR=str(tmp_path), JAX_PLATFORMS="cpu")
        assert told == [[2, 8], False]
    assert len(list((tmp_path / "kernels-v1").glob("*/*/*/manifest.json"))) == 1, "found the second time"


def by_index(x, out):
    x[0] = 1


def by_operator(x, out):
    x += out


def square(x, out):
    out[()] = x[()] * x[()]


def reversed_block(x, out):
    shared = cuda.shared.array(4, cuda.types.float32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    out[i] = shared[3 - i]


def by_strides(x, out):
    out[0] = x.strides[0]


def trace(kernel: Callable[..., None], x: Any) -> None:
    run = numba_cuda_kernel(cuda.jit(kernel), lambda x: x, launch_dims=4, vmap_method="broadcast_all")
    jax.make_jaxpr(run)(x)


@pytest.mark.parametrize(
    ("kernel", "shape", "dtype"),
    [(square, (), "float32"), (square, (), "bool"), (square, (), "bfloat16"), (reversed_block, (4,), "float32")],
)
def test_numbers_and_shared_memory_compile_with_the_successor(kernel: Any, shape: tuple[int, ...], dtype: str):
    trace(kernel, jax.numpy.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (by_index, "hint: an input can't be written"),
        (by_operator, r"hint: x \+= ... writes the input x"),
        (by_strides, "hint: numba-cuda-mlir lacks features of numba-cuda, such as x.strides"),
    ],
)
def test_what_the_successor_refuses_has_a_hint(kernel: Any, message: str):
    with pytest.raises(BuildError, match=message):
        trace(kernel, X)


def test_a_successor_that_compiles_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr("numba_cuda_mlir.tools._cached_cc")
    with pytest.raises(BuildError, match=r"how it chooses an architecture\nhint: pip install 'numba-cuda-mlir==0\.6"):
        trace(by_strides, X)


def test_a_function_that_names_kernels_of_the_successor_needs_no_numba_cuda(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    kernel = cuda.jit(square)

    def launch(x: Any, out: Any, stream: Any) -> None:
        kernel[1, 1, stream](x, out)

    numba_cuda_callable(launch, jax.ShapeDtypeStruct((), np.float32))
