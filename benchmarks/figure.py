"""What a row gives back: figures, each with every sample; a row is a name and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .bench import Bench
from .stats import Estimate, Summary, check_pairs, paired_ratio, summarize

NOISE = 1.02
"""How far apart two equal handlers were seen in one run."""


class Unavailable(Exception):  # noqa: N818 - not an error: the row is left out, and the report says why
    """The machine lacks what a row needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured quantity, alone or against another one.

    Parameters
    ----------
    label : str
        What was measured.
    ours : tuple of float
        Seconds.
    baseline : str
        What it is compared with; empty for nothing.
    theirs : tuple of float
        Seconds, each the partner of ours at its place; empty without a baseline.
    goal : float or None
        The largest ratio, or without a baseline the most seconds, that is good enough.
    within_noise : bool
        Whether it is enough that the interval reaches down to the goal, and the ratio to 2 % above it.
    block : int
        How many samples in a row come from one process.
    """

    label: str
    ours: tuple[float, ...]
    baseline: str = ""
    theirs: tuple[float, ...] = ()
    goal: float | None = None
    within_noise: bool = False
    block: int = 1

    def __post_init__(self) -> None:
        if self.theirs:
            check_pairs(self.ours, self.theirs)

    @property
    def summary(self) -> Summary:
        """Of our samples."""
        return summarize(self.ours)

    @property
    def their_summary(self) -> Summary | None:
        """Of the baseline's samples."""
        return summarize(self.theirs) if self.theirs else None

    @property
    def ratio(self) -> Estimate | None:
        """Ours over theirs."""
        return paired_ratio(self.ours, self.theirs, block=self.block) if self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        ratio = self.ratio
        if ratio is None:
            return self.summary.median <= self.goal
        if self.within_noise:
            return ratio.low <= self.goal and ratio.value <= self.goal * NOISE
        return ratio.value <= self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A part of a row that was not measured: its name, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A module of `benchmarks.rows` defines one as ``ROW``.

    Parameters
    ----------
    measure : callable
        Takes the bench, gives the figures and what it left out; raises `Unavailable` where the machine lacks
        something.
    """

    measure: Callable[[Bench], Iterable[Figure | LeftOut]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a row: its figures, or why there are none, and the parts of it that were left out."""

    row: str
    figures: tuple[Figure, ...] = ()
    skipped: str = ""
    parts: tuple[LeftOut, ...] = ()

    @property
    def left_out(self) -> dict[str, str]:
        """The reasons by what was left out."""
        whole = {self.row: self.skipped} if self.skipped else {}
        return whole | {f"{self.row}, {part.name}": part.reason for part in self.parts}
