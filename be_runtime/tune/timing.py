"""Timing of a kernel's variants, and the comparison of their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from be_runtime.kernels.operation.benchmark import Runner, sample_runners

_SAMPLE_S = 2e-3
"""The time of a sample."""

_FEWEST_CALLS, _FEW_CALLS, _MOST_CALLS = 4, 10, 1000
_WARMUP = 2
_BETTER = 0.98
"""A later configuration is chosen if it takes at most this part of the time of an earlier one: choices are stable."""

_TOLERANCES = {2: 1e-3, 4: 1e-5, 8: 1e-12}
"""By the bytes of a float: the largest error, of the largest entry."""


class Times(NamedTuple):
    """Times of variants, by their numbers.

    Parameters
    ----------
    samples : mapping of int to tuple of float
        Seconds of one call, with the flush where there is one: what they are ranked by.
    warm_us, cold_us : mapping of int to float
        Median microseconds of one call, and of one with the last cache flushed before it, without the flush itself.
    """

    samples: Mapping[int, Sequence[float]]
    warm_us: Mapping[int, float]
    cold_us: Mapping[int, float]


def time_variants(warm: Mapping[int, Runner], cold: Mapping[int, Runner], flush: Runner | None, runs: int) -> Times:
    """Time loops of calls, those of `cold` beside `flush`, a loop of flushes alone."""
    unflushed = _time_runners(warm, runs)
    warm_us = {index: median(found) * 1e6 for index, found in unflushed.items()}
    if flush is None:
        return Times(unflushed, warm_us, {})
    samples = _time_runners({-1: flush, **cold}, runs)
    alone = median(samples.pop(-1))
    return Times(samples, warm_us, {index: (median(found) - alone) * 1e6 for index, found in samples.items()})


def _time_runners(runners: Mapping[int, Runner], runs: int) -> dict[int, tuple[float, ...]]:
    """Return samples of the seconds of one call of each, in turns, so that a change of the clock meets all alike."""
    calls = {key: _calls(run) for key, run in runners.items()}
    samples = sample_runners({key: _times(run, calls[key]) for key, run in runners.items()}, _WARMUP, runs, 1)
    return {key: tuple(seconds / calls[key] for seconds in found) for key, found in samples.items()}


def _times(run: Runner, calls: int) -> Runner:
    return lambda count: run(count * calls)


def _calls(run: Runner) -> int:
    """Return the number of calls of a sample, from the time of a few, which is too long rather than too short."""
    run(1)
    start = time.perf_counter()
    run(_FEW_CALLS)
    seconds = (time.perf_counter() - start) / _FEW_CALLS
    return max(_FEWEST_CALLS, min(_MOST_CALLS, int(_SAMPLE_S / seconds)))


def choose(samples: Mapping[int, Sequence[float]]) -> int:
    """Return the fastest of several, the first of those that are about as fast.

    Samples of one round belong together, so their ratios are compared: the later one has to be faster by the median,
    and in three rounds of four.

    Examples
    --------
    >>> choose({0: [1.0, 2.0], 1: [0.99, 1.98], 2: [0.5, 1.0]})
    2
    """
    best, *rest = samples
    for key in rest:
        ratios = sorted(b / max(a, 1e-12) for a, b in zip(samples[best], samples[key], strict=True))
        if median(ratios) < _BETTER and ratios[len(ratios) * 3 // 4] < 1:
            best = key
    return best


def differs(expected: Sequence[Any], found: Sequence[Any], check: Callable[[Any, Any], bool] | None = None) -> str:
    """Describe the first result that is not as expected; empty if all are.

    Parameters
    ----------
    expected, found : sequence of numpy.ndarray
    check : callable, optional
        Function of two arrays that returns whether the second one is right.

    Examples
    --------
    >>> differs([np.arange(3)], [np.array([0, 1, 5])])
    'result 0 at (2,) is 5, and 2 with the first configuration'
    """
    if [each.shape for each in expected] != [each.shape for each in found]:
        shapes = [tuple(each.shape for each in arrays) for arrays in (found, expected)]
        return f"results have the shapes {shapes[0]}, and {shapes[1]} with the first configuration"
    for number, (right, given) in enumerate(zip(expected, found, strict=True)):
        if check is not None:
            if not check(right, given):
                return f"result {number} does not pass the check"
            continue
        if right.dtype != given.dtype:
            return f"result {number} is {given.dtype}, and {right.dtype} with the first configuration"
        wrong = _wrong(right, given)
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            return f"result {number} at {at} is {given[at]}, and {right[at]} with the first configuration"
    return ""


def _wrong(expected: Any, found: Any) -> Any:
    """Return where results differ: integers in any bit, floats by more than their tolerance."""
    if expected.dtype.kind in "iub" or "int" in expected.dtype.name:  # int4 is no kind of NumPy's own
        return np.asarray(expected != found)
    is_complex = expected.dtype.kind == "c"
    tolerance = _TOLERANCES.get(expected.dtype.itemsize // (2 if is_complex else 1), 0.1)
    wide = np.complex128 if is_complex else np.float64
    right, given = expected.astype(wide), found.astype(wide)
    with np.errstate(invalid="ignore"):
        largest = np.max(np.abs(right), initial=0.0, where=np.isfinite(right))
        near = np.abs(right - given) <= tolerance * largest
    return ~(near | (right == given) | (np.isnan(right) & np.isnan(given)))
