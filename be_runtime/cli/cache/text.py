"""Entries, times and tables as text for people, and as JSON. It touches no file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import TypeVar

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cache.validity.manifest import Making

T = TypeVar("T")

SHORT = 12
"""Digits of a digest in a table."""

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def many(count: int, noun: str, plural: str = "") -> str:
    """Write a number of things.

    Examples
    --------
    >>> many(1, "entry", "entries"), many(0, "day")
    ('1 entry', '0 days')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def ago(then_s: float, now_s: float) -> str:
    """Write how long ago something was.

    Examples
    --------
    >>> ago(0, 7300), ago(0, 0.4), ago(9, 0)
    ('2 hours ago', 'now', 'in the future')
    """
    spent = int(now_s - then_s)
    found = next(((spent // size, unit) for size, unit in _UNITS if spent >= size), None)
    if found is None:
        return "in the future" if spent < 0 else "now"
    return f"{many(*found)} ago"


def day(then_s: float, now_s: float) -> str:
    """Write a time of which only the day is known.

    Examples
    --------
    >>> day(5 * 86400, 5 * 86400 + 60), day(0, 3 * 86400)
    ('today', '3 days ago')
    """
    days = (_date(now_s) - _date(then_s)).days
    if days < 0:
        return "in the future"
    return ("today", "yesterday")[days] if days < 2 else f"{many(days, 'day')} ago"


def by(made: Making) -> str:
    """Write who made an entry, and in how long.

    Examples
    --------
    >>> by(Making("host", 0.14)), by(Making("host", 0.02, source="process 0 of the job"))
    ('host in 0.14 s', 'host in 0.02 s, from process 0 of the job')
    """
    source = f", from {made.source}" if made.source else ""
    return f"{made.host} in {made.seconds:.2f} s{source}"


def entry_json(info: EntryInfo) -> dict[str, object]:
    """Return an entry as JSON data."""
    return {
        "name": info.name,
        "kind": info.kind,
        "digest": info.digest,
        "folder": info.path,
        "is_damaged": info.is_damaged,
        "size_bytes": info.size_bytes,
        "built": stamp(info.created_ns / 1e9),
        "last_used": stamp(info.last_used_s)[:10],
        **info.made._asdict(),
    }


def stamp(time_s: float) -> str:
    """Write a time for programs."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def with_progress(items: Iterable[T], doing: str) -> Iterable[T]:
    """Iterate over items, with a bar on standard error if that is a terminal and it takes long."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, doing, console=Console(stderr=True), transient=True)


def now() -> float:
    """Return the time, in seconds since the epoch."""
    return time.time()


def _date(time_s: float) -> date:
    return datetime.fromtimestamp(time_s).astimezone().date()
