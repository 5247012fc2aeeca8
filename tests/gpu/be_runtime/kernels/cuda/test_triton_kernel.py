"""Triton kernels on a device: results, batches, memory that Triton wants, and calls inside `jax.jit`."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import triton_kernel
from tests.support.requirements import OPTIONAL

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)
import triton.language as tl  # noqa: E402
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # noqa: E402

from tests.support.triton_kernels import add, described  # noqa: E402


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    r = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + at + r[None, :])
        total = tl.dot(x, tl.load(b + (at + r)[:, None] * n + j[None, :]), total)
    tl.store(c + i[:, None] * n + j[None, :], total)


@triton.jit
def product(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A matrix product with tensor descriptors that the launcher makes."""
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        total = tl.dot(a.load([i, at]), b.load([at, j]), total)
    c.store([i, j], total)


@triton.jit
def increment(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gdc_wait()
    gdc_launch_dependents()
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@pytest.fixture(autouse=True)
def _fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns


ADD = "arg[... n] arg[... n] ret[... n] attr.scale:float32"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_results_are_those_of_numpy(dtype: Any):
    call = triton_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256)
    if dtype is np.int32:
        call = triton_kernel(add, ADD.replace("float32", "int32"), grid="ceil(n/BLOCK)", BLOCK=256)
    for size in (1, 256, 1000):
        x = (np.arange(size) % 100).astype(dtype)
        np.testing.assert_array_equal(np.asarray(call(x, x, scale=2)), 3 * x)
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: call(x, x, scale=2))(x)), 3 * x)


def test_vmap_runs_each_slice():
    call = triton_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256)
    x = np.arange(1200, dtype=np.float32).reshape(2, 2, 300)
    run = jax.jit(jax.vmap(jax.vmap(lambda x: call(x, x, scale=2))))
    np.testing.assert_array_equal(np.asarray(run(x)), 3 * x)


def test_a_matrix_product_with_shared_memory():
    call = triton_kernel(
        matmul, "arg[m k] arg[k n] ret[m n]:float32", grid=("m//BM", "n//BN"), BM=64, BN=64, BK=32, num_stages=3
    )
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 256), (256, 192)))
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(np.asarray(jax.jit(call)(a, b)), wanted, rtol=1e-3, atol=1e-2)


def test_memory_that_triton_wants():
    call = triton_kernel(described, "arg[n]:float32 ret[n]", grid="n//BLOCK", BLOCK=128, vmap_method="broadcast_all")
    x = jnp.arange(1024.0)
    np.testing.assert_array_equal(np.asarray(jax.jit(call)(x)), np.arange(1024.0))
    rows = x.reshape(2, 512)
    np.testing.assert_array_equal(np.asarray(jax.vmap(call)(rows)), np.asarray(rows))


def _needs(major: int) -> None:
    if int(jax.devices()[0].compute_capability.partition(".")[0]) < major:
        pytest.skip(f"{OPTIONAL}a device of compute capability {major}.0")


@pytest.mark.parametrize(("m", "k", "n"), [(128, 256, 192), (100, 104, 72)])
def test_a_matrix_product_with_tensor_descriptors(m: int, k: int, n: int):
    """The second has blocks that reach beyond the arrays; one of each batch begins elsewhere."""
    _needs(9)
    call = triton_kernel(
        product,
        "arg[... m k] arg[... k n] ret[... m n]:float32",
        grid=("ceil(m/BM)", "ceil(n/BN)"),
        block_shapes={"a": ("BM", "BK"), "b": ("BK", "BN"), "c": ("BM", "BN")},
        BM=64,
        BN=64,
        BK=32,
    )
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((3, m, k), (3, k, n)))
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    for run in (call, jax.jit(call)):
        np.testing.assert_allclose(np.asarray(run(a[0], b[0])), wanted[0], rtol=1e-3, atol=2e-2)
    np.testing.assert_allclose(np.asarray(jax.jit(jax.vmap(call))(a, b)), wanted, rtol=1e-3, atol=2e-2)


def test_programmatic_launches_wait_for_each_other():
    _needs(9)
    call = triton_kernel(increment, "arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=256, launch_pdl=True)
    x = jnp.arange(1 << 20, dtype=jnp.int32)

    @jax.jit
    def run(x: Any) -> Any:
        for _ in range(20):
            x = call(x)
        return x + 1

    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(run(x)), np.asarray(x) + 21)


@pytest.mark.parametrize("size", [301, 304])
def test_slices_of_a_batch_that_begin_anywhere(size: int):
    call = triton_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256)
    x = np.arange(5 * size, dtype=np.float32).reshape(5, size)
    np.testing.assert_array_equal(np.asarray(jax.vmap(lambda x: call(x, x, scale=2))(x)), 3 * x)
