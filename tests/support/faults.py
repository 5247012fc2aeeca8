"""The tier that breaks things: how far it goes, the seeds of its randomness, and the counts that it says at its end.

`BE_FAULTS` is empty for the short form that runs with all tests, ``minutes`` for ``make test-faults`` and ``full`` for
``FULL=1``. `BE_FAULTS_SEED` is the first seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

LEVELS = ("", "minutes", "full")
LEVEL = os.environ.get("BE_FAULTS", "")
FIRST_SEED = int(os.environ.get("BE_FAULTS_SEED", "0"))
PROPERTY = "faults"
"""Name under which a test's counts get from a process of xdist to the one that writes the summary."""

T = TypeVar("T")


def effort(short: T, minutes: T, full: T) -> T:
    """What belongs to the level that was asked for."""
    return (short, minutes, full)[LEVELS.index(LEVEL)]


def seeds(count: int) -> range:
    """Seeds for so many tests."""
    return range(FIRST_SEED, FIRST_SEED + count)


def chance(seed: int) -> random.Random:
    """The randomness of a seed."""
    return random.Random(seed)  # noqa: S311 - nothing is secret here


class Tally:
    """What one test tried, and what went wrong.

    Parameters
    ----------
    what : str
        What is counted, such as ``"edits"``.
    seed : int
        Seed of the test's randomness.
    """

    def __init__(self, what: str, seed: int) -> None:
        self.what, self.seed = what, seed
        self.tried = 0
        self.wrong: list[str] = []
        self.notes: dict[str, int] = {}

    def note(self, what: str, count: int = 1) -> None:
        """Count something else that is worth saying."""
        self.notes[what] = self.notes.get(what, 0) + count

    def check(self) -> None:
        """Fail if anything went wrong."""
        shown = "\n".join(self.wrong[:10])
        assert not self.wrong, f"{len(self.wrong)} of {self.tried} {self.what} with seed {self.seed}:\n{shown}"

    def row(self) -> dict[str, object]:
        """As plain data."""
        return {
            "what": self.what,
            "seed": self.seed,
            "tried": self.tried,
            "wrong": len(self.wrong),
            "notes": dict(self.notes),
        }


class Sum(NamedTuple):
    """The tallies of one kind together."""

    tried: int = 0
    wrong: int = 0
    seeds: tuple[int, ...] = ()
    notes: tuple[tuple[str, int], ...] = ()


def summary(rows: Iterable[dict[str, object]]) -> list[str]:
    """A line for each kind of fault.

    Examples
    --------
    >>> edits = Tally("edits", 7)
    >>> edits.tried = 400
    >>> edits.note("clean builds", 3)
    >>> summary([edits.row()])
    ['faults: 400 edits, 0 wrong (seed 7; 3 clean builds)']
    """
    sums: dict[str, Sum] = {}
    for row in rows:
        before = sums.get(str(row["what"]), Sum())
        notes = dict(before.notes)
        for name, count in dict(row["notes"]).items():  # type: ignore[call-overload]
            notes[name] = notes.get(name, 0) + count
        sums[str(row["what"])] = Sum(
            before.tried + int(str(row["tried"])),
            before.wrong + int(str(row["wrong"])),
            (*before.seeds, int(str(row["seed"]))),
            tuple(notes.items()),
        )
    return [_line(what, each) for what, each in sums.items()]


def _line(what: str, each: Sum) -> str:
    low, high = min(each.seeds), max(each.seeds)
    seed = f"seed {low}" if low == high else f"seeds {low} to {high}"
    more = "".join(f"; {count:,} {name}" for name, count in each.notes)
    return f"faults: {each.tried:,} {what}, {each.wrong} wrong ({seed}{more})"
