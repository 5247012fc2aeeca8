"""Timing of configurations, each of which is compiled, compared with the first one, and timed in turns with others."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from be_runtime.compile.parallel import run_parallel
from be_runtime.jax import transforms
from be_runtime.kernels.benchmark import Runner, sample_runners, seconds_of
from be_runtime.request.options import identify_cpu
from be_runtime.tune.winners import Config, TunedDevice, name_config, name_of
from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.terminal import table

Check = Callable[[Any, Any], bool]
"""Function that returns whether the second of two arrays is correct."""

_L2_CACHE_SIZE = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE of the driver's cuda.h."""

_FLUSHED = 256 << 20
"""Twice the largest last-level cache of any GPU, for a device whose driver does not report its cache."""

_SAMPLE_S = 2e-3
"""Target duration of a sample."""

_FEWEST_CALLS, _FEW_CALLS, _MOST_CALLS = 4, 10, 1000
_WARMUP = 2

_BETTER = 0.98
"""A later configuration is chosen if its time is below this fraction of an earlier one's, for stable choices."""

_TOLERANCES = {2: 1e-3, 4: 1e-5, 8: 1e-12}
"""Largest error relative to the largest entry, by the bytes of a float."""


def describe_device() -> TunedDevice:
    """Describe JAX's default device."""
    device = transforms.default_device()
    if device.platform == "cpu":
        return TunedDevice(f"cpu {identify_cpu()}", "", "")
    sm = str(getattr(device, "compute_capability", ""))
    return TunedDevice(device.device_kind, sm, probe_devices(LocalSystem()).driver_version or "")


def flush_bytes(device: Any) -> int:
    """Return the size of an array that flushes a GPU's last-level cache, which is twice the size of the cache.

    The size is 0 for a CPU, since a flush of its caches takes thousands of times as long as a small kernel.
    """
    if device.platform == "cpu":
        return 0
    with contextlib.suppress(OSError, AttributeError):
        driver, size = LocalSystem().open_library("libcuda.so.1"), ctypes.c_int()
        ordinal = int(getattr(device, "local_hardware_id", None) or 0)
        if driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, ordinal) == 0:
            return 2 * size.value
    return _FLUSHED


Us = Mapping[int, float]
"""Median microseconds of one call, by the number of the variant."""


def time_variants(
    warm: Mapping[int, Runner], cold: Mapping[int, Runner], flush: Runner | None, runs: int
) -> tuple[Mapping[int, Sequence[float]], Us, Us]:
    """Time loops of calls, and the loops of `cold` together with `flush`, a loop that only flushes.

    Returns
    -------
    tuple
        Seconds of one call, including the flush if there is one, to rank variants; the times of one call,
        and of one call after a flush of the last-level cache, without the flush itself.
    """
    unflushed = _time_runners(warm, runs)
    warm_us = {index: median(found) * 1e6 for index, found in unflushed.items()}
    if flush is None:
        return unflushed, warm_us, {}
    samples = _time_runners({-1: flush, **cold}, runs)
    alone = median(samples.pop(-1))
    # Noise may exceed the time of a short call, which takes no less time after a flush.
    cold_us = {index: max((median(found) - alone) * 1e6, warm_us[index]) for index, found in samples.items()}
    return samples, warm_us, cold_us


def _time_runners(runners: Mapping[int, Runner], runs: int) -> dict[int, tuple[float, ...]]:
    """Sample the seconds of one call of each runner in turns, so that a change of clock speed affects all equally."""
    calls = {key: _calls(run) for key, run in runners.items()}
    loops = {key: lambda count, run=run, each=calls[key]: run(count * each) for key, run in runners.items()}
    samples = sample_runners(loops, _WARMUP, runs, 1)
    return {key: tuple(seconds / calls[key] for seconds in found) for key, found in samples.items()}


def _calls(run: Runner) -> int:
    """Return the number of calls of a sample, from the time of a few calls."""
    run(1)
    seconds = seconds_of(run, _FEW_CALLS) / _FEW_CALLS
    return max(_FEWEST_CALLS, min(_MOST_CALLS, int(_SAMPLE_S / seconds)))


def choose(samples: Mapping[int, Sequence[float]]) -> int:
    """Return the number of the fastest variant, or of the first one of those that are about as fast.

    Samples of one round are compared by their ratio. A later variant must be faster by the median and in more than
    three quarters of the rounds.

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


def differs(expected: Sequence[Any], found: Sequence[Any], check: Check | None = None) -> str:
    """Describe the first result that differs from the expected one; return an empty text if none does.

    Parameters
    ----------
    expected, found : sequence of numpy.ndarray
    check : callable, optional
        Function of two arrays that returns whether the second one is correct.

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
    """Return where results differ, which is in any bit for integers, and by more than the tolerance for floats."""
    if expected.dtype.kind in "iub" or "int" in expected.dtype.name:  # NumPy has no kind for int4
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
        Median microseconds of one call, and of one call after a flush of a GPU's last-level cache; None if not timed.
    rejected : str
        Reason why the configuration can't be chosen.
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
                *("" if us is None else f"{us:.2f}" for us in (each.warm_us, each.cold_us)),
                each.rejected or ("chosen" if each.config == self.chosen else ""),
            )
            for each in self.trials
        ]
        return f"{self.bucket}\n{table([heads, *rows])}"


class Variant(NamedTuple):
    """A configuration that was compiled and run once.

    Parameters
    ----------
    config : dict
    warm, cold : callable or None
        Loops of calls, and of calls after a flush of the last-level cache; None if the configuration was rejected. A
        CPU has no loop with flushes.
    rejected : str
        Reason why the configuration can't be chosen, in one line.
    error : Exception or None
        Exception that the configuration raised.
    results : tuple of numpy.ndarray
        Results of the first configuration that works; empty for others.
    """

    config: Config
    warm: Runner | None = None
    cold: Runner | None = None
    rejected: str = ""
    error: Exception | None = None
    results: tuple[Any, ...] = ()


def time_configs(
    make: Callable[[Config], Callable[..., Any]],
    configs: Sequence[Config],
    arrays: Sequence[Any],
    check: Check | None,
    runs: int,
) -> tuple[int, tuple[Trial, ...], Mapping[int, float]]:
    """Time configurations on JAX's default device.

    Parameters
    ----------
    make : callable
        Function of a configuration that returns a function of arrays.
    check : callable or None
        See `differs`.
    runs : int
        Samples of each configuration.

    Returns
    -------
    tuple
        Number of the chosen trial; all trials; microseconds to store, by the number of each timed trial.

    Raises
    ------
    Exception
        Exception of the first configuration, if none works.
    """
    device = transforms.default_device()
    size = flush_bytes(device)

    def made(config: Config, right: Sequence[Any] | None) -> Variant:
        try:
            function = make(config)
            results = transforms.results_of(function, arrays, device)
            problem = "" if right is None else differs(right, results, check)
            if problem:
                return Variant(config, rejected=problem)
            warm = transforms.repeated(function, arrays, device)
            cold = transforms.repeated(function, arrays, device, size) if size else None
            for run in filter(None, (warm, cold)):
                run(1)
        except Exception as error:  # noqa: BLE001 - it is a result: the other configurations are still tried
            return Variant(config, rejected=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", error=error)
        return Variant(config, warm, cold, results=tuple(results) if right is None else ())

    variants: list[Variant] = []
    for config in configs:
        variants.append(made(config, None))
        if variants[-1].warm is not None:
            break
    else:
        error = variants[0].error
        assert error is not None, "a variant without results raised"
        name_config(error, configs[0])
        raise error
    right = variants[-1].results
    variants += run_parallel(lambda config: made(config, right), configs[len(variants) :])
    flush = transforms.repeated(lambda *_arrays: (), arrays, device, size) if size else None
    warm = {index: each.warm for index, each in enumerate(variants) if each.warm is not None}
    cold = {index: each.cold for index, each in enumerate(variants) if each.cold is not None}
    samples, warm_us, cold_us = time_variants(warm, cold, flush, runs)
    trials = tuple(
        Trial(each.config, warm_us.get(index), cold_us.get(index), each.rejected) for index, each in enumerate(variants)
    )
    return choose(samples), trials, cold_us or warm_us
