"""Traces of JAX's profiler, read as files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax


class Profile(NamedTuple):
    """A trace: the events that a viewer shows, and the file with the programs that ran."""

    events: list[dict[str, Any]]
    programs: bytes

    def operations(self) -> set[str]:
        """The names of XLA's operations that ran."""
        return {event["args"]["hlo_op"] for event in self.events if "hlo_op" in event.get("args", {})}


def profile(run: Callable[[], Any], folder: Path) -> Profile:
    """Trace a function that was compiled before."""
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(run())
    (events,) = folder.rglob("*.trace.json.gz")
    (programs,) = folder.rglob("*.xplane.pb")
    return Profile(json.loads(gzip.decompress(events.read_bytes()))["traceEvents"], programs.read_bytes())


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the line of a function's source that has a text."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    return next(first + index for index, line in enumerate(lines) if text in line)
