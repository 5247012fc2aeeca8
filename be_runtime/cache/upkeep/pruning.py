"""Pruning in small steps: each build looks at a few folders, and records its progress for the next build.

A round through all folders removes entries that have not been used for long, and counts the bytes of the rest by the
time of their last use. These counts determine which entries the next round removes to reach the size limit. Rounds
begin a day apart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from be_runtime.cache.upkeep.entries import EntryInfo, fans, remove_empty_folders, scan_fan
from be_runtime.cache.upkeep.staging import discard, sweep, sweep_unfinished
from be_runtime.cache.validity.lookup import replace_private
from be_toolchain.machine.trust.regular_file import LARGE, read_regular

_DAY_S = 24 * 3600.0
_MINUTE_S = 60


class Round(NamedTuple):
    """Progress of a round.

    Parameters
    ----------
    done : str
        Last folder that was looked at; empty between rounds.
    sizes : dict of str to int
        Bytes of the entries that were kept, by the minute of their last use.
    used_before_s : int
        Entries last used before this time are removed.
    ended_s : float
        End of the previous round.
    """

    done: str = ""
    sizes: Mapping[str, int] = {}
    used_before_s: int = 0
    ended_s: float = 0.0


def prune(
    base: str, max_size_bytes: int | None, max_age_days: float | None, *, patience_s: float, now_s: float
) -> bool:
    """Continue the round by at least one folder, and return whether it is over.

    Raises
    ------
    OSError
        The cache can't be written.
    """
    stop_at = time.monotonic() + patience_s
    now = _read(base)
    if not now.done and 0 <= now_s - now.ended_s < _DAY_S:
        return True
    oldest_s = max(now.used_before_s, 0.0 if max_age_days is None else now_s - max_age_days * _DAY_S)
    sizes = dict(now.sizes)
    for fan in (fan for fan in fans(base) if fan > now.done):
        for info in scan_fan(base, fan):
            if info.is_damaged or info.last_used_s < oldest_s:
                with contextlib.suppress(OSError):
                    discard(base, info.path, info.digest)
            else:
                sweep_unfinished(info.path)
                minute = str(int(info.last_used_s // _MINUTE_S))
                sizes[minute] = sizes.get(minute, 0) + info.size_bytes
        remove_empty_folders(base, fan)
        if time.monotonic() >= stop_at:
            _write(base, now._replace(done=fan, sizes=sizes))
            return False
    sweep(base)
    before_s = 0 if max_size_bytes is None else used_before_s(sizes, max_size_bytes)
    _write(base, Round(used_before_s=before_s, ended_s=0.0 if before_s else now_s))
    return not before_s


def used_before_s(sizes: Mapping[str, int], max_size_bytes: int) -> int:
    """Return the time before which entries must be removed for the rest to fit; the newest minute stays. Pure.

    Examples
    --------
    >>> used_before_s({"10": 500, "11": 300, "12": 200}, 500)
    660
    >>> used_before_s({"10": 500, "11": 300, "12": 200}, 1000)
    0
    >>> used_before_s({"12": 200}, 0)
    0
    """
    minutes = sorted(map(int, sizes), reverse=True)
    for newer, minute in itertools.pairwise(minutes):
        max_size_bytes -= sizes[str(newer)]
        if sizes[str(minute)] > max_size_bytes:
            return newer * _MINUTE_S
    return 0


def beyond_limits(
    entries: Iterable[EntryInfo], max_size_bytes: int, max_age_days: float, *, now_s: float
) -> list[EntryInfo]:
    """Return what a person who prunes expects to go: all that is damaged, old, or least recently used and too much."""
    newest_first = sorted(entries, key=lambda info: (info.last_used_s, info.created_ns), reverse=True)
    sizes = itertools.accumulate(info.size_bytes for info in newest_first)
    oldest_s = now_s - max_age_days * _DAY_S
    pairs = zip(newest_first, sizes, strict=True)
    return [info for info, size in pairs if info.is_damaged or info.last_used_s < oldest_s or size > max_size_bytes]


def _state_file(base: str) -> str:
    return f"{base}/pruning.json"


def _read(base: str) -> Round:
    """Read the progress of the round; a new round if none is recorded."""
    try:
        now = Round(**json.loads(read_regular(_state_file(base), LARGE)))
        sizes = {str(int(minute)): int(size) for minute, size in now.sizes.items()}
        return Round(str(now.done), sizes, int(now.used_before_s), float(now.ended_s))
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Round()


def _write(base: str, now: Round) -> None:
    replace_private(_state_file(base), json.dumps(now._asdict()))
