"""Python that launches several Numba kernels on XLA's stream."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, numba_cuda_callable

pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)
from numba import cuda

# Each launch is small, and Numba warns of it; under pytest a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size")

N = 1000
OUT = jax.ShapeDtypeStruct((N,), jnp.float32)


@cuda.jit
def scale(x, factor, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factor * x[i]


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


class Counted:
    """Two launches, the second on the result of the first; how often Python ran is counted."""

    __name__ = "counted"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any, y: Any, middle: Any, out: Any, stream: Any) -> None:
        self.calls += 1
        blocks = (out.size + 255) // 256
        scale[blocks, 256, stream](x, np.float32(3), middle)
        add[blocks, 256, stream](middle, y, out)


X, Y = np.arange(N, dtype=np.float32), np.linspace(0, 1, N, dtype=np.float32)


@pytest.mark.parametrize("graph", [False, True])
def test_several_launches_in_order(graph: bool):
    run = jax.jit(numba_cuda_callable(Counted(), {"middle": OUT, "out": OUT}, graph=graph))
    for x in (X, X + 1, X * 2):
        result = run(x, Y)
        np.testing.assert_allclose(result["middle"], 3 * x, rtol=1e-6)
        np.testing.assert_allclose(result["out"], 3 * x + Y, rtol=1e-6)


def test_a_graph_is_replayed_without_python():
    func = Counted()
    call = numba_cuda_callable(func, (OUT, OUT), graph=True)

    def chain(x: Any, y: Any) -> Any:
        for _ in range(8):
            x = call(x, y)[1] / 4
        return x

    run = jax.jit(chain)
    run(X, Y).block_until_ready()
    recorded = func.calls
    for _ in range(10):
        result = run(X, Y).block_until_ready()
    expected: Any = X
    for _ in range(8):
        expected = (3 * expected + Y) / 4
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    assert func.calls - recorded < 8 * 10, "Python ran for every call"


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap(method: str):
    run = jax.jit(jax.vmap(numba_cuda_callable(Counted(), (OUT, OUT), vmap_method=method), in_axes=(0, None)))
    batch = np.stack([X, X + 1, -X])
    np.testing.assert_allclose(run(batch, Y)[1], 3 * batch + Y, rtol=1e-6)


def test_an_output_that_begins_with_an_input():
    def increment(x: Any, out: Any, stream: Any) -> None:
        add[(N + 255) // 256, 256, stream](out, out, out)

    run = jax.jit(numba_cuda_callable(increment, OUT, input_output_aliases={0: 0}))
    np.testing.assert_allclose(run(jnp.asarray(X)), 2 * X)


def test_an_exception_is_an_xla_error():
    def refuses(x: Any, out: Any, stream: Any) -> None:
        raise ValueError("not today")

    with pytest.raises(jax.errors.JaxRuntimeError, match="refuses: ValueError: not today"):
        jax.jit(numba_cuda_callable(refuses, OUT))(X).block_until_ready()
    np.testing.assert_allclose(jax.jit(numba_cuda_callable(Counted(), (OUT, OUT)))(X, Y)[0], 3 * X, rtol=1e-6)


def test_what_can_not_be_recorded_is_refused_when_it_is_traced():
    def synchronises(x: Any, out: Any, stream: Any) -> None:
        scale[(N + 255) // 256, 256, stream](x, np.float32(1), out)
        stream.synchronize()

    with pytest.raises(ArgumentError, match="synchronises can't be recorded into a CUDA graph"):
        jax.jit(numba_cuda_callable(synchronises, OUT, graph=True)).lower(X)
    np.testing.assert_allclose(jax.jit(numba_cuda_callable(synchronises, OUT))(X), X)


def test_from_several_threads():
    run = jax.jit(numba_cuda_callable(Counted(), (OUT, OUT)))

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random(N, np.float32)
        return all(np.allclose(run(x, Y)[1], 3 * x + Y, rtol=1e-5) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_several_dtypes_and_shapes():
    @cuda.jit
    def fill(x, out, flag):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = x[j, i]
        if i == 0 and j == 0:
            flag[()] = True

    def func(x: Any, out: Any, flag: Any, stream: Any) -> None:
        fill[(1, 1), (16, 16), stream](x, out, flag)

    outs = (jax.ShapeDtypeStruct((5, 3), jnp.int32), jax.ShapeDtypeStruct((), jnp.bool_))
    x = np.arange(15, dtype=np.int32).reshape(3, 5)
    out, flag = jax.jit(numba_cuda_callable(func, outs))(x)
    np.testing.assert_array_equal(out, x.T)
    assert bool(flag)
