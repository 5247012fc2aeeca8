"""CuTe DSL's functions on a device: results, batches, derivatives, recorded calls, and a second process."""

# ruff: noqa: ANN001, N803 - CuTe DSL reads the annotations of arrays and numbers
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import cute_kernel
from tests.support.cuda import run_json
from tests.support.requirements import OPTIONAL

cutlass: Any = pytest.importorskip("cutlass", reason=f"{OPTIONAL}nvidia-cutlass-dsl", exc_type=ImportError)
from cutlass import cute  # noqa: E402


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale, BLOCK: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * BLOCK + thread
    if i < cute.size(x):
        out[i] = (x[i] + scale * y[i]).to(out.element_type)


@cute.jit
def add(
    x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32, stream, BLOCK: cutlass.Constexpr = 256
):
    grid = [cute.ceil_div(cute.size(x), BLOCK), 1, 1]
    add_kernel(x, y, out, scale, BLOCK).launch(grid=grid, block=[BLOCK, 1, 1], stream=stream)


@cute.kernel
def transpose_kernel(x: cute.Tensor, out: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    j, batch, _ = cute.arch.block_idx()
    if i < cute.size(x, mode=[1]):
        out[batch, j, i] = x[batch, i, j]


@cute.jit
def transpose(x: cute.Tensor, out: cute.Tensor, stream):
    grid = [cute.size(x, mode=[2]), cute.size(x, mode=[0]), 1]
    transpose_kernel(x, out).launch(grid=grid, block=[256, 1, 1], stream=stream)


@cute.kernel
def fill_kernel(x: cute.Tensor, by):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + by


@cute.jit
def fill(x: cute.Tensor, by: cutlass.Int32, stream):
    fill_kernel(x, by).launch(grid=[1, 1, 1], block=[8, 1, 1], stream=stream)


ADD = "arg[n] arg[n] ret[n] attr.scale:float32 parallel[n]"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_results_are_those_of_jax(dtype: Any):
    call = cute_kernel(add, ADD, BLOCK=128)
    for size in (1, 128, 1000):
        x = jnp.arange(size) % 64
        x = x.astype(dtype)
        assert (call(x, x, scale=2) == 3 * x).all()
        assert (jax.jit(lambda x: call(x, x, scale=2))(x) == 3 * x).all()


@pytest.mark.parametrize("graph", [True, False])
def test_a_chain_of_calls_recorded_and_not(graph: bool):
    call = cute_kernel(add, ADD, allow_cuda_graph=graph)
    x = jnp.arange(1000.0)

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = call(call(x, x, scale=1), x, scale=-1)
        return x + 1

    for _ in range(3):
        assert (chain(x) == x + 1).all()


def test_a_batch_is_right_by_a_parallel_axis_and_by_leading_axes():
    x = jnp.arange(2 * 3 * 50.0).reshape(2, 3, 50)
    call = cute_kernel(add, ADD)
    assert (jax.vmap(jax.vmap(lambda x: call(x, x, scale=2)))(x) == 3 * x).all()
    turn = cute_kernel(transpose, "arg[... m n] ret[... n m]")
    assert (turn(x[0]) == x[0].T).all()
    assert (turn(x) == x.swapaxes(1, 2)).all()
    assert (jax.vmap(turn)(x) == x.swapaxes(1, 2)).all()


def test_an_array_that_is_changed_in_place():
    call = cute_kernel(fill, "inout[8] attr.by:int32")
    assert call(jnp.arange(8), by=5).tolist() == list(range(5, 13))


def test_derivatives():
    call, ones = cute_kernel(add, ADD), cute_kernel(add, ADD)
    call.defvjp(None, lambda _inputs, cotangent, scale: (cotangent, ones(cotangent, cotangent, scale=scale - 1)))
    x = jnp.arange(100.0)
    grads = jax.jit(jax.grad(lambda x, y: (call(x, y, scale=3) ** 2).sum(), (0, 1)))(x, x)
    np.testing.assert_allclose(np.asarray(grads), np.asarray([8 * x, 24 * x]))


PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
import jax.numpy as jnp
import cutlass.cute as cute
from be_runtime import cute_kernel
from tests.gpu.be_runtime.kernels.cute.test_cute_on_gpu import ADD, add


def refused(*args, **options):
    raise AssertionError("compiled again")


if sys.argv[1] == "again":
    cute.compile = refused
print(json.dumps(cute_kernel(add, ADD)(jnp.arange(3.0), jnp.ones(3), scale=2).tolist()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code = f"import runpy; runpy.run_path({str(program)!r})"
    for word in ("first", "again"):
        assert run_json(code, word, json.dumps(sys.path)) == [2, 3, 4]
