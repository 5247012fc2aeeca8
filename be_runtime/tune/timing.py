"""Variants of a kernel: each is compiled, run once, compared with the first, and made ready to be timed."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from be_runtime.compile.parallel import run_parallel
from be_runtime.jax import transforms
from be_runtime.kernels.benchmark import Runner, sample_runners
from be_runtime.request.options import identify_cpu
from be_runtime.tune.winners import Config, TunedDevice, name_of
from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.terminal import table

_L2_CACHE_SIZE = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE of the driver's cuda.h."""

_FLUSHED = 256 << 20
"""Twice the largest last cache of today, for a device whose driver doesn't tell."""


def describe_device(device: Any) -> TunedDevice:
    """Describe one of JAX's devices."""
    if device.platform == "cpu":
        return TunedDevice(f"cpu {identify_cpu()}", "", "")
    sm = str(getattr(device, "compute_capability", ""))
    return TunedDevice(device.device_kind, sm, probe_devices(LocalSystem()).driver_version or "")


def flush_bytes(device: Any) -> int:
    """Return the size of an array that displaces everything from a GPU's last cache: twice that cache.

    It is 0 for a CPU: to flush its caches takes thousands of times as long as a small kernel, and hides it.
    """
    if device.platform == "cpu":
        return 0
    with contextlib.suppress(OSError, AttributeError):
        driver, size = LocalSystem().open_library("libcuda.so.1"), ctypes.c_int()
        ordinal = int(getattr(device, "local_hardware_id", None) or 0)
        if driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, ordinal) == 0:
            return 2 * size.value
    return _FLUSHED


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


class Trial(NamedTuple):
    """One configuration of a tuning.

    Parameters
    ----------
    config : dict
    warm_us, cold_us : float or None
        Median microseconds of one call, and of one with a GPU's last cache flushed before it; None if it was rejected.
    rejected : str
        Reason why it can't be chosen.
    """

    config: Config
    warm_us: float | None = None
    cold_us: float | None = None
    rejected: str = ""


class Trials(NamedTuple):
    """A tuning for one bucket; ``print`` shows a table.

    Parameters
    ----------
    bucket : str
    chosen : dict
        The configuration that was chosen.
    trials : tuple of Trial
    """

    bucket: str
    chosen: Config
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        heads = ("configuration", "us, warm", "us, flushed", "")
        rows = [
            (
                name_of(each.config),
                "" if each.warm_us is None else f"{each.warm_us:.2f}",
                "" if each.cold_us is None else f"{each.cold_us:.2f}",
                each.rejected or ("chosen" if each.config == self.chosen else ""),
            )
            for each in self.trials
        ]
        return f"{self.bucket}\n{table([heads, *rows])}"


Make = Callable[[Config], Callable[..., Any]]
"""Makes the function of a configuration, and keeps it."""


class Variant(NamedTuple):
    """A configuration that was tried.

    Parameters
    ----------
    config : dict
    warm, cold : callable or None
        Loops of calls, and of those with the last cache flushed before each; None if it was rejected. A CPU has no
        second one.
    rejected : str
        Reason why it can't be chosen, in one line.
    error : Exception or None
        What it raised.
    results : tuple of numpy.ndarray
        Results of the first one.
    """

    config: Config
    warm: Runner | None = None
    cold: Runner | None = None
    rejected: str = ""
    error: Exception | None = None
    results: tuple[Any, ...] = ()


def make_variants(
    make: Make, configs: Sequence[Config], arrays: Sequence[Any], check: Callable[[Any, Any], bool] | None, device: Any
) -> list[Variant]:
    """Make all variants, several at a time. The first that works is the one whose results are right.

    Raises
    ------
    Exception
        Whatever the first configuration raised, if none works.
    """
    flush = flush_bytes(device)
    made: list[Variant] = []
    waiting = list(configs)
    while waiting and not any(each.warm for each in made):
        made.append(_made(make, arrays, device, flush, None, check, waiting.pop(0)))
    if not any(each.warm for each in made):
        error = made[0].error
        assert error is not None, "a variant without results raised"
        raise error
    right = made[-1].results
    rest = partial(_made, make, arrays, device, flush, right, check)
    return made + run_parallel(rest, waiting)


def _made(
    make: Make,
    arrays: Sequence[Any],
    device: Any,
    flush: int,
    right: Sequence[Any] | None,
    check: Callable[[Any, Any], bool] | None,
    config: Config,
) -> Variant:
    try:
        function = make(config)
        results = transforms.results_of(function, arrays, device)
        problem = "" if right is None else differs(right, results, check)
        if problem:
            return Variant(config, rejected=problem)
        warm = transforms.repeated(function, arrays, device)
        cold = transforms.repeated(function, arrays, device, flush) if flush else None
        for run in filter(None, (warm, cold)):
            run(1)
    except Exception as error:  # noqa: BLE001 - it is a result: the other configurations are still tried
        return Variant(config, rejected=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", error=error)
    return Variant(config, warm, cold, results=tuple(results) if right is None else ())
