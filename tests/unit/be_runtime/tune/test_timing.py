"""The choice among samples, and results that are not those of the first configuration."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from be_runtime.kernels.operation import benchmark
from be_runtime.tune import timing
from be_runtime.tune.timing import choose, differs


@pytest.mark.parametrize(
    ("samples", "chosen"),
    [
        ({0: [4.0, 4.0], 1: [2.0, 2.0], 2: [1.0, 1.0]}, 2),
        *(({0: [1.0, 1.0], 1: [0.99, 0.99]}, 0), ({3: [1.0]}, 3)),  # of equals the first
        ({0: [1.0, 10.0, 1.0, 10.0], 1: [0.9, 9.0, 0.9, 9.0]}, 1),  # rounds are compared with each other
        ({0: [1.0, 1.0, 1.0, 1.0], 1: [0.2, 0.2, 1.5, 1.5]}, 0),  # one that wins half of them does not win
    ],
)
def test_the_fastest_wins(samples: dict[int, list[float]], chosen: int):
    assert choose(samples) == chosen


def test_runners_take_turns_in_opposite_orders():
    called: list[str] = []
    runners = {name: lambda count, name=name: called.append(f"{name}{count}") for name in ("a", "b")}
    benchmark.sample_runners(runners, 0, 2, 1)
    assert called == ["a2", "a1", "b2", "b1", "b2", "b1", "a2", "a1"]


def test_the_flush_alone_is_taken_off_what_is_shown(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    for module in (benchmark, timing):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def runner(seconds: float) -> benchmark.Runner:
        def run(count: int) -> None:
            now[0] += 1e-4 + count * seconds  # a loop has a cost of its own too

        return run

    times = timing.time_variants({0: runner(1e-3)}, {0: runner(6e-3)}, runner(2e-3), 4)
    assert set(times.samples) == {0}
    assert times.samples[0] == pytest.approx([6e-3] * 4)
    assert times.cold_us[0] == pytest.approx(4000)
    assert times.warm_us[0] == pytest.approx(1000)
    assert timing.time_variants({0: runner(1e-3)}, {}, None, 2).cold_us == {}


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def small(*values: int) -> np.ndarray:
    return np.array(values, ml_dtypes.uint4)


EQUAL = (
    *((np.arange(3), np.arange(3)), (floats(1, 1e6), floats(1.5, 1e6)), (small(15, 3), small(15, 3))),
    *((np.array([1.0], np.float16), np.array([1.001], np.float16)), (np.array([1 + 1j]), np.array([1 + 1j]))),
    *((np.array([np.nan, np.inf]), np.array([np.nan, np.inf])), (np.zeros(0), np.zeros(0))),
)
DIFFERENT = (
    *((np.arange(3), np.array([0, 1, 3])), (floats(1, 1e6), floats(1, 1e6 + 20)), (small(15, 3), small(15, 4))),
    *((np.array([1.0]), np.array([1.0 + 1e-9])), (np.array([1.0], np.float16), np.array([1.01], np.float16))),
    *((np.array([np.nan, 1.0]), np.array([1.0, 1.0])), (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]))),
    *((np.array([1 + 1j]), np.array([1 - 1j])), (np.array([True]), np.array([False]))),
    *((np.zeros(3), np.zeros(4)), (np.zeros(3, np.float32), np.zeros(3, np.float16))),
)


@pytest.mark.parametrize(
    ("expected", "found", "is_right"), [*((*each, True) for each in EQUAL), *((*each, False) for each in DIFFERENT)]
)
def test_results_are_compared_with_the_first(expected: np.ndarray, found: np.ndarray, is_right: bool):
    assert (differs([expected], [found]) == "") == is_right


def test_an_author_may_check_the_results():
    assert differs([np.zeros(2)], [np.ones(2)], lambda _first, _other: True) == ""
    assert differs([np.zeros(2)], [np.zeros(2)], lambda _first, _other: False) == "result 0 does not pass the check"
