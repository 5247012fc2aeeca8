"""The tier that breaks things: how far it goes, the seeds of its randomness, and the counts that it says at its end.

`BE_FAULTS` is empty for the short form that runs with all tests, ``minutes`` for ``make test-faults`` and ``full`` for
``FULL=1``. `BE_FAULTS_SEED` is the first seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

LEVELS = ("", "minutes", "full")
LEVEL = os.environ.get("BE_FAULTS", "")
FIRST_SEED = int(os.environ.get("BE_FAULTS_SEED", "0"))
PROPERTY = "faults"
"""Name under which a test's counts get from a process of xdist to the one that writes the summary."""

T = TypeVar("T")

longer = pytest.mark.faults if LEVEL else pytest.mark.full
"""Marks what the short form leaves to `make test-full` and to `make test-faults`."""


def first_of(cases: Iterable[Any]) -> list[Any]:
    """Mark the cases of a parametrized test as `longer`, but for the first one."""
    return [pytest.param(case, marks=longer if number else ()) for number, case in enumerate(cases)]


def effort(short: T, minutes: T, full: T) -> T:
    """What belongs to the level that was asked for."""
    return (short, minutes, full)[LEVELS.index(LEVEL)]


def seeds(count: int) -> range:
    """Seeds for so many tests."""
    return range(FIRST_SEED, FIRST_SEED + count)


def chance(seed: int) -> random.Random:
    """The randomness of a seed."""
    return random.Random(seed)  # noqa: S311 - nothing is secret here


@dataclass
class Tally:
    """What one test tried, what went wrong, and what else is worth counting."""

    what: str
    seed: int
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Fail if anything went wrong."""
        shown = "\n".join(self.wrong[:10])
        assert not self.wrong, f"{len(self.wrong)} of {self.tried} {self.what} with seed {self.seed}:\n{shown}"

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return {**vars(self), "wrong": len(self.wrong), "notes": dict(self.notes)}


Tallies = Callable[[str, int], Tally]


def summary(rows: Iterable[dict[str, Any]]) -> list[str]:
    """A line for each kind of fault.

    Examples
    --------
    >>> edits = Tally("edits", 7, tried=400)
    >>> edits.notes["clean builds"] += 3
    >>> summary([edits.row(), Tally("edits", 8, tried=600).row()])
    ['faults: 1,000 edits, 0 wrong (seeds 7 to 8; 3 clean builds)']
    """
    sums: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sums.setdefault(row["what"], []).append(row)
    return [_line(what, each) for what, each in sums.items()]


def _line(what: str, rows: list[dict[str, Any]]) -> str:
    tried, wrong = (sum(row[name] for row in rows) for name in ("tried", "wrong"))
    low, high = (each(row["seed"] for row in rows) for each in (min, max))
    notes: Counter[str] = Counter()
    for row in rows:
        notes.update(row["notes"])
    seed = f"seed {low}" if low == high else f"seeds {low} to {high}"
    more = "".join(f"; {count:,} {name}" for name, count in notes.items())
    return f"faults: {tried:,} {what}, {wrong} wrong ({seed}{more})"
