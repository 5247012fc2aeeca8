"""The choice among samples, and results that are not those of the first configuration."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from be_runtime.kernels.operation import benchmark
from be_runtime.tune import timing
from be_runtime.tune.timing import choose, differs


def test_the_fastest_wins_and_of_equals_the_first():
    assert choose({0: [4.0, 4.0], 1: [2.0, 2.0], 2: [1.0, 1.0]}) == 2
    assert choose({0: [1.0, 1.0], 1: [0.99, 0.99]}) == 0
    assert choose({3: [1.0]}) == 3


def test_rounds_are_compared_with_each_other():
    slow_machine = {0: [1.0, 10.0, 1.0, 10.0], 1: [0.9, 9.0, 0.9, 9.0]}
    assert choose(slow_machine) == 1


def test_one_that_wins_half_of_the_rounds_does_not_win():
    assert choose({0: [1.0, 1.0, 1.0, 1.0], 1: [0.2, 0.2, 1.5, 1.5]}) == 0


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


@pytest.mark.parametrize(
    ("expected", "found", "is_right"),
    [
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.array([0, 1, 3]), False),
        (np.array([1.0, 1e6], np.float32), np.array([1.5, 1e6], np.float32), True),
        (np.array([1.0, 1e6], np.float32), np.array([1.0, 1e6 + 20], np.float32), False),
        (np.array([1.0]), np.array([1.0 + 1e-9]), False),
        (np.array([1.0], np.float16), np.array([1.001], np.float16), True),
        (np.array([1.0], np.float16), np.array([1.01], np.float16), False),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), True),
        (np.array([np.nan, 1.0]), np.array([1.0, 1.0]), False),
        (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]), False),
        (np.array([1 + 1j]), np.array([1 + 1j]), True),
        (np.array([1 + 1j]), np.array([1 - 1j]), False),
        (np.array([True]), np.array([False]), False),
        (np.zeros(0), np.zeros(0), True),
        (np.zeros(3), np.zeros(4), False),
        (np.zeros(3, np.float32), np.zeros(3, np.float16), False),
        (np.array([15, 3], ml_dtypes.uint4), np.array([15, 4], ml_dtypes.uint4), False),
        (np.array([15, 3], ml_dtypes.uint4), np.array([15, 3], ml_dtypes.uint4), True),
    ],
)
def test_results_are_compared_with_the_first(expected: np.ndarray, found: np.ndarray, is_right: bool):
    assert (differs([expected], [found]) == "") == is_right


def test_an_author_may_check_the_results():
    assert differs([np.zeros(2)], [np.ones(2)], lambda _first, _other: True) == ""
    assert differs([np.zeros(2)], [np.zeros(2)], lambda _first, _other: False) == "result 0 does not pass the check"
