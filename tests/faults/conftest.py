"""Counts that a test of this tier hands over to the summary."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests.support.faults import PROPERTY, Tallies, Tally


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Generator[Tallies]:
    """Makes tallies; what they have at the end of the test is said at the end of the run."""
    made: list[Tally] = []

    def make(what: str, seed: int) -> Tally:
        made.append(Tally(what, seed))
        return made[-1]

    yield make
    for each in made:
        record_property(PROPERTY, each.row())
