"""Pure statistics of paired measurements: what comes before and after the stopwatch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Samples of one quantity in a few numbers.

    Parameters
    ----------
    count : int
    median, minimum, maximum : float
        In the samples' unit.
    spread : float
        The distance between the quartiles over the median; 0 for a single sample.
    """

    count: int
    median: float
    minimum: float
    maximum: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and the confidence interval around it."""

    value: float
    low: float
    high: float


def summarize(samples: Sequence[float]) -> Summary:
    """Count, median, extremes and spread.

    Raises
    ------
    ValueError
        There is no sample.

    Examples
    --------
    >>> summarize([4.0, 1.0, 2.0, 3.0, 5.0]).median
    3.0
    """
    if not samples:
        raise ValueError("no samples")
    middle = median(samples)
    spread = 0.0
    if len(samples) > 1 and middle:
        low, _, high = quantiles(samples, n=4, method="inclusive")
        spread = (high - low) / middle
    return Summary(count=len(samples), median=middle, minimum=min(samples), maximum=max(samples), spread=spread)


def alternating(contestants: Sequence[Item], rounds: int) -> list[tuple[Item, ...]]:
    """The order of each round: forward and backward by turns, so that a drift of the machine favours none.

    Examples
    --------
    >>> alternating("AB", 2)
    [('A', 'B'), ('B', 'A')]
    """
    forward = tuple(contestants)
    return [forward if index % 2 == 0 else forward[::-1] for index in range(rounds)]


def check_pairs(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Refuse what has no ratios.

    Raises
    ------
    ValueError
        Not as many of one as of the other, none at all, or a value that is not above 0.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs are needed, not {len(ours)} and {len(theirs)} samples")
    if min(*ours, *theirs) <= 0:
        raise ValueError("a duration must be above 0: the machine is too noisy, or the rounds are too short")


def paired_ratio(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    block: int = 1,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The median of the ratios of pairs, with the interval of a percentile bootstrap over the pairs.

    Parameters
    ----------
    ours, theirs : sequence of float, shape (n_pairs,)
        The two members of a pair were measured right after each other.
    block : int
        This many pairs in a row share a process, and with it a layout of memory: they are resampled together. A
        single block is resampled by pairs.
    confidence : float
        Of the interval.
    resamples, seed : int
        Of the bootstrap; the same input gives the same interval.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        See `check_pairs`.

    Examples
    --------
    >>> paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    Estimate(value=2.0, low=2.0, high=2.0)
    """
    check_pairs(ours, theirs)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    blocks = [ratios[start : start + block] for start in range(0, len(ratios), block)]
    if len(blocks) == 1:
        blocks = [[ratio] for ratio in ratios]
    medians = _bootstrap_medians(blocks, resamples, random.Random(seed))  # noqa: S311 - no secret
    tail = (1 - confidence) / 2
    return Estimate(value=median(ratios), low=_quantile(medians, tail), high=_quantile(medians, 1 - tail))


def _bootstrap_medians(blocks: Sequence[Sequence[float]], resamples: int, generator: random.Random) -> list[float]:
    """The median of each resample, sorted."""
    return sorted(
        median([ratio for block in generator.choices(blocks, k=len(blocks)) for ratio in block])
        for _ in range(resamples)
    )


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """A quantile of sorted values, interpolated."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
