"""A benchmark calls what it says it calls, as often as it says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, BenchmarkConfig, XLACustomKernel, benchmark_function
from be_runtime.kernels.operation.benchmark import BenchmarkRecord, BenchmarkResult
from be_runtime.xla.jax_primitive import repeated

X = jnp.arange(3.0)
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)


def counting(calls: list[str], name: str) -> Any:
    """A generator of kernels with two results that write down each call; XLA may treat them as pure."""

    def count(x: Any) -> Any:
        calls.append(name)
        return np.asarray(x) + 1, np.asarray(x) + 2

    return lambda outs: lambda x: jax.pure_callback(count, outs, x)


def test_no_call_is_left_out_or_moved_out_of_the_loop():
    calls: list[str] = []
    op = XLACustomKernel("counted")
    op.def_kernel("a", "cpu", counting(calls, "a"))
    run = repeated(lambda x: op(x, outs=(OUT, OUT)), [X], jax.devices("cpu")[0])
    for count in (1, 7, 20):
        calls.clear()
        run(count)
        assert len(calls) == count


def test_backends_take_turns_and_every_sample_counts():
    calls: list[str] = []
    op = XLACustomKernel("compared")
    for name in ("a", "b"):
        op.def_kernel(name, "cpu", counting(calls, name))
    op.def_benchmark_data(lambda platform: [BenchmarkConfig("small", (X,), {"outs": (OUT, OUT)})])
    result = op.benchmark(n_warmup=1, n_runs=3, calls=2)
    assert [(each.label, each.backend, len(each.seconds)) for each in result.records] == [
        *(("small", "a", 3), ("small", "b", 3))
    ]
    forward, backward = "a" * 6 + "b" * 6, "b" * 6 + "a" * 6
    assert "".join(calls) == "aabb" + 2 * (forward + backward)


def test_a_backend_that_fails_is_reported_and_does_not_stop_the_others():
    def broken(outs: Any) -> Any:
        raise ValueError("no such kernel\nmore")

    op = XLACustomKernel("half")
    op.def_kernel("broken", "cpu", broken)
    op.def_kernel("works", "cpu", lambda outs: lambda x: [x])
    op.def_call(lambda x, backend: op(x, outs=OUT, backend=backend))
    op.def_benchmark_data(lambda platform: [BenchmarkConfig("one", (X,))])
    result = op.benchmark(n_runs=1, calls=1)
    assert result.records[0].error == (
        "GeneratorError: the kernel 'broken' of half can't be made: ValueError: no such kernel"
    )
    assert result.records[0].seconds == ()
    assert result.fastest().backend == "works"
    assert "ValueError: no such kernel" in str(result)


def test_the_table_and_the_fastest():
    records = (
        BenchmarkRecord("small", "a", (3e-6, 1e-6, 2e-6)),
        BenchmarkRecord("small", "b", (4e-6,)),
        BenchmarkRecord("large", "b", (1e-3,)),
    )
    result = BenchmarkResult("op", records)
    assert result.fastest() == records[0]
    assert result.fastest("large") == records[2]
    with pytest.raises(ValueError, match="nothing was measured for huge"):
        result.fastest("huge")
    assert str(result).splitlines()[2].split() == ["small", "a", "2.00", "1.00"]


@pytest.mark.parametrize(
    ("data", "numbers", "message"),
    [
        *((data, {}, "the benchmark data of op") for data in ([], [3], [("label", (X,))])),
        *(([BenchmarkConfig("one", (X,))], few, "at least") for few in ({"n_runs": 0}, {"calls": 0}, {"n_warmup": -1})),
    ],
)
def test_data_that_are_no_configurations_and_numbers_that_are_too_small(data: Any, numbers: Any, message: str):
    op = XLACustomKernel("op")
    op.def_benchmark_data(lambda platform: data)
    with pytest.raises(ArgumentError, match=message):
        op.benchmark(**numbers)


def test_a_function_is_called_as_often_as_it_says():
    calls: list[int] = []

    def function(x: Any, y: Any) -> Any:
        calls.append(1)
        return {"sum": x + y}

    mean, deviation, fastest, slowest, result = benchmark_function(function, 2, 3, 4, (X, X))
    assert len(calls) == (2 + 3) * 4
    assert 0 < fastest <= mean <= slowest
    assert deviation >= 0
    np.testing.assert_array_equal(result["sum"], 2 * X)
    for numbers in ((-1, 1, 1), (0, 0, 1), (0, 1, 0)):
        with pytest.raises(ArgumentError, match="at least"):
            benchmark_function(function, *numbers)
