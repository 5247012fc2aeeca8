"""One operation with a kernel of Numba, one of C++ and one of JAX, and the pages about operations and Numba."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import ad

import be_runtime
from be_runtime import XLACustomKernel, numba_kernel
from tests.support.docs import run_page
from tests.support.requirements import in_full

numba: Any = pytest.importorskip("numba")

SOURCE = """
#include "brainevent/common.h"
// @BE multiply
void multiply(const BE::Tensor x, const BE::Tensor y, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * y.data_ptr<float>()[i];
}
"""


@numba.njit
def multiply(x, y, out):
    for i in range(out.size):
        out[i] = x[i] * y[i]


@pytest.fixture(scope="module")
def operation() -> XLACustomKernel:
    be_runtime.load_cpp_inline("operation_on_cpu", SOURCE)
    made = XLACustomKernel("multiply")
    made.def_numba_kernel(lambda outs: numba_kernel(multiply, outs, vmap_method="broadcast_all"))
    made.def_kernel("cpp", "cpu", lambda outs: jax.ffi.ffi_call("operation_on_cpu.multiply", outs))
    made.def_kernel("jax", "cpu", lambda outs: lambda x, y: [x * y])
    made.def_jvp_rule2(lambda t, x, y, **other: made(t, y, **other), lambda t, x, y, **other: made(x, t, **other))

    def transpose(cotangents: Any, x: Any, y: Any, **parameters: Any) -> Any:
        if ad.is_undefined_primal(x):
            return made(cotangents[0], y, **parameters)[0], None
        return None, made(x, cotangents[0], **parameters)[0]

    made.def_transpose_rule(transpose)
    return made


X = jnp.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
Y = jnp.array([[0.5, -1.0, 2.0], [1.0, 1.5, 0.3]])


def loss(function: Any) -> Any:
    return lambda x, y: jnp.sin(function(x, y)).sum()


def test_every_backend_under_every_transform(operation: XLACustomKernel):
    """The C++ kernel doesn't say how it behaves under vmap; it is called for one element after the other."""
    row = jax.ShapeDtypeStruct((3,), jnp.float32)

    def transformed(function: Any) -> Any:
        mapped = jax.vmap(function)
        return (
            mapped(X, Y),
            jax.vmap(function, in_axes=(0, None))(X, Y[0]),
            jax.vmap(jax.grad(loss(function), (0, 1)))(X, Y),
            jax.grad(loss(mapped), (0, 1))(X, Y),
            jax.hessian(loss(function))(X[0], Y[0]),
        )

    expected = transformed(lambda x, y: x * y)
    for backend in operation.available_backends("cpu"):
        found = jax.jit(lambda backend=backend: transformed(lambda x, y: operation(x, y, outs=row, backend=backend)))()
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("page", [*map(in_full, ("numba-cpu.md", "custom-kernels.md")), "from-numba-callbacks.md"])
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It prints what it says."""
    if page == "custom-kernels.md":
        pytest.importorskip("tests.support.warp_kernels", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    assert run_page(f"docs/{page}") > 2
