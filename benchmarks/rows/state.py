"""State in a call against a call without it and a handler written by hand."""

from __future__ import annotations

from collections.abc import Iterator

from ..bench import Bench
from ..figure import Figure, Row
from .workspace import measure_kinds


def measure(bench: Bench) -> Iterator[Figure]:
    """An object that each call looks at."""
    return measure_kinds(bench, {"planned": "state"}, "state")


ROW = Row(measure=measure)
