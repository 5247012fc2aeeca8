"""Python that launches several Numba kernels on XLA's stream."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, numba_cuda_callable

cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

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
def test_batches_and_outputs_that_begin_with_an_input(method: str):
    """An input for a whole batch can still be where an output begins."""

    def accumulate(total: Any, x: Any, out: Any, stream: Any) -> None:
        add[(N + 255) // 256, 256, stream](out, x, out)

    batch = np.stack([X, X + 1, -X])
    batched = jax.jit(jax.vmap(numba_cuda_callable(Counted(), (OUT, OUT), vmap_method=method), in_axes=(0, None)))
    np.testing.assert_allclose(batched(batch, Y)[1], 3 * batch + Y, rtol=1e-6)
    run = numba_cuda_callable(accumulate, OUT, input_output_aliases={0: 0}, vmap_method=method)
    np.testing.assert_allclose(jax.jit(run)(jnp.asarray(X), Y), X + Y, rtol=1e-6)
    batch = np.stack([Y, Y + 1, -Y])
    np.testing.assert_allclose(jax.jit(jax.vmap(run, in_axes=(None, 0)))(X, batch), X + batch, rtol=1e-6)


def double(x: Any, out: Any, stream: Any) -> None:
    scale[(N + 255) // 256, 256, stream](x, np.float32(2), out)


def waits(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, stream)
    stream.synchronize()
    double(middle, out, stream)


def allocates(x: Any, middle: Any, out: Any, stream: Any) -> None:
    own = cuda.device_array(N, np.float32)
    double(x, own, stream)
    double(own, middle, stream)
    double(own, out, stream)


def decides_by_its_input(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, stream)
    if x.copy_to_host()[0] >= 0:
        double(middle, out, stream)


def copies_to_the_host(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, stream)
    double(middle, out, stream)
    out.copy_to_host(HOST, stream=stream)


def takes_the_default_stream(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, stream)
    double(middle, out, 0)


def takes_another_stream(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, another_stream())
    double(middle, out, another_stream())


def takes_another_stream_for_a_part(x: Any, middle: Any, out: Any, stream: Any) -> None:
    double(x, middle, stream)
    double(x, out, another_stream())


HOST = np.zeros(N, np.float32)


@functools.cache
def another_stream() -> Any:
    return cuda.stream()


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (waits, "CUDA_ERROR_STREAM_CAPTURE"),
        (allocates, "CUDA_ERROR_STREAM_CAPTURE"),
        (decides_by_its_input, "CUDA_ERROR_STREAM_CAPTURE"),
        (copies_to_the_host, "it copies from or to the host"),
        (takes_the_default_stream, "CUDA_ERROR_STREAM_CAPTURE"),
        (takes_another_stream, "it launches nothing on the given stream"),
        (takes_another_stream_for_a_part, "a replay does not write output 1, which a call does"),
    ],
)
def test_what_can_not_be_recorded_is_refused_when_it_is_traced(func: Any, reason: str):
    with pytest.raises(ArgumentError, match=f"{func.__name__} can't be recorded into a CUDA graph: .*{reason}"):
        jax.jit(numba_cuda_callable(func, (OUT, OUT), graph=True)).lower(X)


def test_what_can_not_be_recorded_works_without_a_graph():
    for func in (waits, allocates):
        np.testing.assert_allclose(jax.jit(numba_cuda_callable(func, (OUT, OUT)))(X)[1], 4 * X)


def test_copies_on_the_device_and_outputs_in_place_can_be_recorded():
    def copies(x: Any, middle: Any, out: Any, stream: Any) -> None:
        middle.copy_to_device(x, stream=stream)
        double(middle, out, stream)

    def increment(x: Any, y: Any, out: Any, stream: Any) -> None:
        add[(N + 255) // 256, 256, stream](out, y, out)

    run = jax.jit(numba_cuda_callable(copies, (OUT, OUT), graph=True))
    for x in (X, X + 1):
        np.testing.assert_allclose(run(x)[1], 2 * x)
    run = jax.jit(numba_cuda_callable(increment, OUT, input_output_aliases={0: 0}, graph=True))
    np.testing.assert_allclose(run(X, Y), X + Y, rtol=1e-6)


def test_nothing_is_rehearsed_where_there_is_nothing_to_compute():
    def func(x: Any, out: Any, stream: Any) -> None:
        raise AssertionError("a launch of no blocks is an error")

    nothing = jax.ShapeDtypeStruct((0,), jnp.float32)
    assert jax.jit(numba_cuda_callable(func, nothing, graph=True))(X).shape == (0,)


def test_the_rehearsal_loads_kernels_on_every_device():
    devices = jax.devices("gpu")
    seen = []

    def func(x: Any, out: Any, stream: Any) -> None:
        seen.append(cuda.get_current_device().id)
        double(x, out, stream)

    call = numba_cuda_callable(func, OUT, graph=True)
    jax.jit(call).lower(jax.device_put(X, devices[0]))
    assert seen == [device for device in range(len(devices)) for _ in range(2)]
    for device in devices:
        result = jax.jit(call)(jax.device_put(X, device))
        assert result.devices() == {device}
        np.testing.assert_allclose(result, 2 * X)


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
