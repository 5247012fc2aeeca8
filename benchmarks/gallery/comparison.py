"""Pure: what the samples of a page say, each problem a kernel against the best plain JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.stats import Estimate, paired_ratio

from . import KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A problem, timed by a kernel and by forms in plain JAX.

    Parameters
    ----------
    operation, label : str
    kernel : float
        Seconds, as all that follow; the median of the samples.
    plain : mapping of str to float
        The forms in plain JAX, as the page names them.
    best : str
        The fastest of them.
    gain : Estimate
        How many times as long the best takes: the median of the ratios of pairs, with its 95 % interval.
    """

    operation: str
    label: str
    kernel: float
    plain: Mapping[str, float]
    best: str
    gain: Estimate

    @property
    def is_faster(self) -> bool | None:
        """Whether the kernel is the faster one; None where the interval, in the two digits that are shown, has 1."""
        return None if round(self.gain.low, 2) <= 1 <= round(self.gain.high, 2) else self.gain.value > 1


def compare(operations: list[dict[str, Any]]) -> tuple[Comparison, ...]:
    """The comparisons of a page, in its order.

    Raises
    ------
    ValueError
        A record has no samples or impossible ones, or a problem has no kernel or no other form.
    """
    found = []
    for operation in operations:
        for label in dict.fromkeys(record["label"] for record in operation["records"]):
            samples = {
                record["backend"]: record["seconds"] for record in operation["records"] if record["label"] == label
            }
            found.append(_comparison(operation["name"], label, samples))
    return tuple(found)


def _comparison(operation: str, label: str, samples: dict[str, list[float]]) -> Comparison:
    empty = [backend for backend, seconds in samples.items() if not seconds]
    impossible = [backend for backend, seconds in samples.items() if min(seconds, default=1) <= 0]
    if impossible:
        raise ValueError(f"{operation}, {label}: times of {impossible} below zero; measure again on a quiet machine")
    ours = [backend for backend in samples if backend in KERNELS]
    plain = {backend: median(seconds) for backend, seconds in samples.items() if backend not in KERNELS and seconds}
    if empty or len(ours) != 1 or not plain:
        raise ValueError(f"{operation}, {label}: {len(ours)} kernels, {len(plain)} plain forms, no samples of {empty}")
    best = min(plain, key=lambda backend: plain[backend])
    gain = paired_ratio(samples[best], samples[ours[0]])
    return Comparison(
        operation=operation, label=label, kernel=median(samples[ours[0]]), plain=plain, best=best, gain=gain
    )
