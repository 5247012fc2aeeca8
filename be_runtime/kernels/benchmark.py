"""Benchmarks of kernels, which are timed in alternation, and of Python functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from statistics import mean, median, pstdev
from typing import Any, NamedTuple, TypeVar

from be_runtime.errors import ArgumentError
from be_runtime.frames import public
from be_runtime.jax import port, transforms
from be_toolchain.terminal import table

K = TypeVar("K", bound=Hashable)
Runner = Callable[[int], None]


class BenchmarkConfig(NamedTuple):
    """One configuration to time, for `XLACustomKernel.def_benchmark_data`.

    Parameters
    ----------
    label : str
        Name of the configuration in the result.
    arguments : tuple of array
        Inputs of the call.
    keywords : mapping of str to object, default {}
        Keywords of the call, except ``backend``.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> be_runtime.BenchmarkConfig("small", (jnp.zeros(8),), {"factor": 2}).label
    'small'
    """

    label: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Hashable] = {}


class BenchmarkRecord(NamedTuple):
    """Measurement of one backend on one configuration, in a `BenchmarkResult`.

    Attributes
    ----------
    label : str
        Name of the configuration.
    backend : str
        Name of the backend.
    seconds : tuple of float
        Samples of the time of one call, in seconds; empty if the backend failed.
    error : str
        Reason for the failure, in one line; empty if there are samples.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.
    """

    label: str
    backend: str
    seconds: tuple[float, ...]
    error: str = ""

    @property
    def median_s(self) -> float:
        """The median of the samples in seconds; infinite if the backend failed."""
        return median(self.seconds) if self.seconds else float("inf")


class BenchmarkResult(NamedTuple):
    """All measurements of `XLACustomKernel.benchmark`.

    ``print`` shows a table.

    Attributes
    ----------
    name : str
        Name of the operation.
    records : tuple of BenchmarkRecord
        Records, one for each backend and configuration.

    See Also
    --------
    - :doc:`/custom-kernels`: operations with several kernels.
    """

    name: str
    records: tuple[BenchmarkRecord, ...]

    def fastest(self, label: str | None = None) -> BenchmarkRecord:
        """Return the record with the smallest median.

        Parameters
        ----------
        label : str, optional
            Name of a configuration. By default, all configurations are compared.

        Returns
        -------
        BenchmarkRecord
            Record with the smallest median.

        Raises
        ------
        ValueError
            No backend has samples.
        """
        found = [each for each in self.records if each.seconds and label in (None, each.label)]
        if not found:
            raise ValueError(f"nothing was measured for {label or self.name}")
        return min(found, key=lambda each: each.median_s)

    def __str__(self) -> str:
        rows = [("configuration", "backend", "median us", "fastest us")]
        for each in self.records:
            times = (each.median_s, min(each.seconds)) if each.seconds else ()
            shown = [f"{seconds * 1e6:.2f}" for seconds in times] or [each.error, ""]
            rows.append((each.label, each.backend, shown[0], shown[1]))
        return f"{self.name}\n{table(rows)}"


@public
def benchmark_function(
    fn: Callable[..., Any], n_warmup: int, n_runs: int, n_batch_per_run: int = 1, data: Sequence[Any] = ()
) -> tuple[float, float, float, float, Any]:
    """Time calls of a Python function, including the time that JAX takes to start compiled programs.

    Parameters
    ----------
    fn : callable
        Function, called as ``fn(*data)``.
    n_warmup : int
        Number of samples that are discarded.
    n_runs : int
        Number of samples that are kept.
    n_batch_per_run : int, default 1
        Number of calls in a sample. A sample ends when the results of all calls are ready.
    data : sequence, default ()
        Arguments of the function.

    Returns
    -------
    tuple of (float, float, float, float, object)
        Mean, standard deviation, minimum and maximum of the time of one call in seconds, and the result of the last
        call.

    Raises
    ------
    ArgumentError
        `n_runs` or `n_batch_per_run` is below 1, or `n_warmup` is below 0.

    See Also
    --------
    - `XLACustomKernel.benchmark`: time kernels without the start of a program.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> mean, deviation, least, most, result = be_runtime.benchmark_function(jnp.sum, 1, 3, data=[jnp.ones(4)])
    >>> least <= mean <= most, result.item()
    (True, 4.0)
    """
    if min(n_runs, n_batch_per_run) < 1 or n_warmup < 0:
        raise ArgumentError(
            f"n_runs={n_runs} and n_batch_per_run={n_batch_per_run} must be at least 1, n_warmup={n_warmup} at least 0"
        )
    seconds = []
    for _ in range(n_warmup + n_runs):
        start = time.perf_counter()
        results = [fn(*data) for _ in range(n_batch_per_run)]
        port.wait(results)
        seconds.append((time.perf_counter() - start) / n_batch_per_run)
    kept = seconds[n_warmup:]
    return mean(kept), pstdev(kept), min(kept), max(kept), results[-1]


def check_configs(given: Iterable[Any], name: str) -> tuple[BenchmarkConfig, ...]:
    """Check benchmark data.

    Raises
    ------
    ArgumentError
        There is no data, or an item is not a `BenchmarkConfig`.
    """
    configs = tuple(given)
    wrong = next((each for each in configs if not isinstance(each, BenchmarkConfig)), None)
    if wrong is not None or not configs:
        what = f"gives {wrong!r}" if wrong is not None else "gives nothing"
        raise ArgumentError(f"the benchmark data of {name} {what}; it must give BenchmarkConfig objects")
    return configs


def measure(
    name: str,
    call: Callable[..., Any],
    configs: Sequence[BenchmarkConfig],
    backends: Sequence[str],
    *,
    device: Any,
    n_warmup: int,
    n_runs: int,
    calls: int,
) -> BenchmarkResult:
    """Time each backend on each configuration; the backends alternate within a configuration."""
    records: list[BenchmarkRecord] = []
    for config in configs:
        runners: dict[str, Runner] = {}
        failed: dict[str, str] = {}
        for backend in backends:
            try:
                function = partial(call, **{**config.keywords, "backend": backend})
                run = transforms.repeated(function, config.arguments, device)
                run(calls)  # compiles the loop: a failure occurs here
                runners[backend] = run
            except Exception as error:  # noqa: BLE001 - it is a result: the other backends are still timed
                failed[backend] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        samples = sample_runners(runners, n_warmup, n_runs, calls)
        records += [
            BenchmarkRecord(config.label, each, tuple(samples.get(each, ())), failed.get(each, "")) for each in backends
        ]
    return BenchmarkResult(name, tuple(records))


def sample_runners(runners: Mapping[K, Runner], n_warmup: int, n_runs: int, calls: int) -> dict[K, list[float]]:
    """Measure the seconds of one call; each round has the opposite order of the round before."""
    samples: dict[K, list[float]] = {backend: [] for backend in runners}
    order = list(runners)
    for index in range(n_warmup + n_runs):
        for backend in order:
            sample = seconds_of_call(runners[backend], calls)
            if index >= n_warmup:
                samples[backend].append(sample)
        order.reverse()
    return samples


def seconds_of_call(run: Runner, calls: int) -> float:
    """Measure the seconds of one call, without the cost of starting the loop; above 0.

    That is the difference between loops of `calls` and twice as many calls. Where noise exceeds it, more calls are
    timed, and in the end the start of the loop is left in.
    """
    for more in (1, 4, 16):
        twice = seconds_of(run, 2 * more * calls)
        difference = twice - seconds_of(run, more * calls)
        if difference > 0:
            return difference / (more * calls)
    return twice / (2 * more * calls)


def seconds_of(run: Runner, calls: int) -> float:
    """Measure the seconds of a loop of calls."""
    start = time.perf_counter()
    run(calls)
    return time.perf_counter() - start
