"""Variants of a kernel: each is compiled, run once, compared with the first, and made ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.compile.run.parallel import run_parallel
from be_runtime.kernels.operation.benchmark import Runner
from be_runtime.tune.configs import Config
from be_runtime.tune.machine import flush_bytes
from be_runtime.tune.timing import differs
from be_runtime.xla import jax_primitive

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
        results = jax_primitive.results_of(function, arrays, device)
        problem = "" if right is None else differs(right, results, check)
        if problem:
            return Variant(config, rejected=problem)
        warm = jax_primitive.repeated(function, arrays, device)
        cold = jax_primitive.repeated(function, arrays, device, flush) if flush else None
        for run in filter(None, (warm, cold)):
            run(1)
    except Exception as error:  # noqa: BLE001 - it is a result: the other configurations are still tried
        return Variant(config, rejected=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", error=error)
    return Variant(config, warm, cold, results=tuple(results) if right is None else ())
