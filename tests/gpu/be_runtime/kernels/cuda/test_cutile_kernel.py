"""cuTile kernels on a device: results, batches, shared memory, and calls inside `jax.jit`."""

# ruff: noqa: ANN001, N803 - cuTile finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import cutile_kernel
from tests.support.requirements import OPTIONAL

ct: Any = pytest.importorskip("cuda.tile", reason=f"{OPTIONAL}cuda.tile", exc_type=ImportError)


@ct.kernel
def add(x, y, out, scale, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(BLOCK,)) + scale * ct.load(y, index=(i,), shape=(BLOCK,))
    ct.store(out, index=(i,), tile=ct.astype(tile, out.dtype))


@ct.kernel
def matmul(a, b, c, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((BM, BN), 0, ct.float32)
    for at in range(ct.num_tiles(a, axis=1, shape=(BM, BK))):
        x = ct.load(a, index=(i, at), shape=(BM, BK), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, index=(at, j), shape=(BK, BN), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(x, y, total)
    ct.store(c, index=(i, j), tile=total)


@ct.kernel
def wide(x: ct.IndexedWithInt64, n, m: ct.ScalarInt64, out, BLOCK: ct.Constant[int] = 16):
    i = ct.bid(0)
    tile = ct.load(x, index=(i, 0), shape=(1, BLOCK)) + n + m
    ct.store(out, index=(i, 0), tile=ct.astype(tile, out.dtype))


@ct.kernel
def increment(x, out, BLOCK: ct.Constant[int]):
    ct.grid_dependency_control_wait()
    ct.grid_dependency_control_launch_dependents()
    ct.store(out, index=(ct.bid(0),), tile=ct.load(x, index=(ct.bid(0),), shape=(BLOCK,)) + 1)


ADD = "arg[... n] arg[... n] ret[... n] attr.scale:float32"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_results_are_those_of_numpy(dtype: Any):
    call = cutile_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256)
    for size in (1, 256, 1000):
        x = (np.arange(size) % 100).astype(dtype)
        np.testing.assert_array_equal(np.asarray(call(x, x, scale=2)), 3 * x)
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: call(x, x, scale=2))(x)), 3 * x)


@pytest.mark.parametrize("size", [301, 304])
def test_vmap_runs_each_slice(size: int):
    call = cutile_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256)
    x = np.arange(4 * size, dtype=np.float32).reshape(2, 2, size)
    run = jax.jit(jax.vmap(jax.vmap(lambda x: call(x, x, scale=2))))
    np.testing.assert_array_equal(np.asarray(run(x)), 3 * x)


@pytest.mark.parametrize("options", [{}, {"num_ctas": 2}, {"occupancy": 2}])
@pytest.mark.parametrize(("m", "k", "n"), [(256, 512, 384), (100, 72, 200)])
def test_a_matrix_product(m: int, k: int, n: int, options: dict[str, Any]):
    call = cutile_kernel(
        matmul,
        "arg[m k] arg[k n] ret[m n]:float32",
        grid=("ceil(m/BM)", "ceil(n/BN)"),
        BM=128,
        BN=128,
        BK=64,
        **options,
    )
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(np.asarray(jax.jit(call)(a, b)), wanted, rtol=1e-3, atol=2e-2)


def test_wide_indices_and_axes_as_numbers():
    call = cutile_kernel(wide, "arg[n m] ret[n m]", grid="n")
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_array_equal(np.asarray(jax.jit(call)(x)), x + 20)


def test_a_result_in_the_memory_of_an_input():
    call = cutile_kernel(add, ADD, grid="ceil(n/BLOCK)", BLOCK=256, input_output_aliases={0: 0})
    x = np.arange(1000, dtype=np.float32)
    run = jax.jit(lambda x: call(x, x, scale=2), donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(run(jnp.asarray(x))), 3 * x)


def test_programmatic_launches_wait_for_each_other():
    if int(jax.devices()[0].compute_capability.partition(".")[0]) < 9:
        pytest.skip(f"{OPTIONAL}a device of compute capability 9.0")
    call = cutile_kernel(
        increment, "arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024, programmatic_dependent_launch=True
    )
    x = jnp.arange(1 << 20, dtype=jnp.int32)

    @jax.jit
    def run(x: Any) -> Any:
        for _ in range(20):
            x = call(x)
        return x + 1

    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(run(x)), np.asarray(x) + 21)
