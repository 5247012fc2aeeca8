"""List and remove the cache's entries, and prune them in small steps.

Each build prunes a few folders and records its progress for the next build. A round through all folders removes entries
that have not been used for long, and counts the bytes of the rest by the time of their last use. These counts determine
which entries the next round removes to reach the size limit. Rounds begin a day apart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping

from be_runtime.store import cache, keys, lock, publish
from be_runtime.store.folder import DIGEST, FAN, KEY, MANIFEST, fan_folder, key_folder, lock_file
from be_runtime.store.manifest import Making, Manifest, in_memory, parse_manifest
from be_toolchain.machine.trust import LARGE, open_regular, read_regular
from be_toolchain.named import NamedTuple

_DAY_S = 24 * 3600.0
_MINUTE_S = 60
_STATE = "pruning.json"


class EntryInfo(NamedTuple):
    """One entry in a listing.

    Parameters
    ----------
    path : str
        Folder of the entry.
    digest, kind, name : str
        Digest, kind and name of its key; kind and name are empty if the entry is damaged.
    size_bytes : int
        Size of its outputs.
    created_ns : int
        Time of the build.
    last_used_s : float
        Time of the last use, in seconds since the epoch, to a day.
    is_damaged : bool
        True if its manifest can't be read.
    made : Making
        Builder, duration and reason of the build.
    """

    path: str
    digest: str
    kind: str = ""
    name: str = ""
    size_bytes: int = 0
    created_ns: int = 0
    last_used_s: float = 0.0
    is_damaged: bool = False
    made: Making = Making()


def scan(base: str) -> Iterator[EntryInfo]:
    """Iterate over all entries."""
    for fan in fans(base):
        yield from scan_fan(base, fan)


def scan_fan(base: str, fan: str) -> Iterator[EntryInfo]:
    """Iterate over the entries of one fan-out folder."""
    for digest in filter(DIGEST.fullmatch, sorted(cache.names_in(f"{base}/{fan}"))):
        for folder in cache.variant_folders(base, digest):
            info = _info(folder, digest)
            if info is not None:
                yield info


def clear(base: str, name: str | None) -> int:
    """Remove the entries of one name, or all entries and the remains of killed builds; return the number of entries."""
    removed = remove(base, [info for info in scan(base) if name is None or info.name == name])
    if name is None:
        publish.sweep(base)
    return len(removed)


def remove(base: str, entries: Iterable[EntryInfo]) -> list[EntryInfo]:
    """Remove entries, and return the removed ones, since another process may have removed the rest."""
    removed = [info for info in entries if publish.discard(base, info.path, info.digest)]
    for fan in fans(base):
        remove_empty_folders(base, fan)
    return removed


def newest_key(base: str, key: keys.CacheKey) -> keys.CacheKey | None:
    """Return the key of the newest entry of the same kind and name, other than `key` itself."""
    siblings = [
        info for info in scan(base) if (info.kind, info.name) == (key.kind, key.name) and info.digest != key.digest
    ]
    for info in sorted(siblings, key=lambda info: info.created_ns, reverse=True):
        found = read_key(info.path)
        if found is not None and found.digest == info.digest:  # otherwise, the entry is damaged
            return found
    return None


def read_key(folder: str) -> keys.CacheKey | None:
    """Read the key of an entry; None if the entry is damaged or removed."""
    with contextlib.suppress(OSError, ValueError):
        return keys.CacheKey.from_json(read_regular(f"{folder}/{KEY}").decode())
    return None


def read_entry(folder: str) -> tuple[Manifest, float]:
    """Read an entry's manifest and the time of its last use, without counting as a use.

    Raises
    ------
    OSError, ValueError
        The entry is removed or damaged.
    """
    with open_regular(f"{folder}/{MANIFEST}", LARGE) as file:
        return in_memory(parse_manifest(file.read())), os.fstat(file.fileno()).st_mtime


def fans(base: str) -> list[str]:
    """List the names of the existing fan-out folders, sorted."""
    return sorted(filter(FAN.fullmatch, cache.names_in(base)))


def _info(folder: str, digest: str) -> EntryInfo | None:
    """Describe one entry; None if it was removed meanwhile."""
    try:
        manifest, last_used_s = read_entry(folder)
    except (OSError, ValueError):
        return EntryInfo(path=folder, digest=digest, is_damaged=True) if os.path.isdir(folder) else None
    return EntryInfo(
        path=folder,
        digest=digest,
        kind=manifest.kind,
        name=manifest.name,
        size_bytes=manifest.size_bytes,
        created_ns=manifest.created_ns,
        last_used_s=last_used_s,
        is_damaged=manifest.digest != digest,
        made=manifest.made,
    )


def remove_empty_folders(base: str, fan: str) -> None:
    """Remove the folders and lock files of keys without entries; a running build makes its folders again."""
    for name in cache.names_in(f"{base}/{fan}"):
        digest = name.removesuffix(".lock")
        if DIGEST.fullmatch(digest):
            with contextlib.suppress(OSError):
                os.rmdir(key_folder(base, digest))
            if not os.path.isdir(key_folder(base, digest)):
                lock.remove_if_free(lock_file(base, digest))
    with contextlib.suppress(OSError):
        os.rmdir(fan_folder(base, fan))


class Round(NamedTuple):
    """Progress of a pruning round.

    Parameters
    ----------
    done : str
        Last pruned folder; empty between rounds.
    sizes : dict of str to int
        Bytes of the kept entries, by the minute of their last use.
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
    """Continue the pruning round by at least one folder; return whether nothing is left to do for now.

    Raises
    ------
    OSError
        The cache can't be written.
    """
    stop_at = time.monotonic() + patience_s
    now = _read_round(base)
    if not now.done and 0 <= now_s - now.ended_s < _DAY_S:
        return True
    oldest_s = max(now.used_before_s, 0.0 if max_age_days is None else now_s - max_age_days * _DAY_S)
    sizes = dict(now.sizes)
    for fan in (fan for fan in fans(base) if fan > now.done):
        for info in scan_fan(base, fan):
            if info.is_damaged or info.last_used_s < oldest_s:
                with contextlib.suppress(OSError):
                    publish.discard(base, info.path, info.digest)
            else:
                publish.sweep_unfinished(info.path)
                minute = str(int(info.last_used_s // _MINUTE_S))
                sizes[minute] = sizes.get(minute, 0) + info.size_bytes
        remove_empty_folders(base, fan)
        if time.monotonic() >= stop_at:
            _write_round(base, now._replace(done=fan, sizes=sizes))
            return False
    publish.sweep(base)
    before_s = 0 if max_size_bytes is None else used_before_s(sizes, max_size_bytes)
    _write_round(base, Round(used_before_s=before_s, ended_s=0.0 if before_s else now_s))
    return not before_s


def used_before_s(sizes: Mapping[str, int], max_size_bytes: int) -> int:
    """Return the time before which entries must be removed to reach the size limit; the newest minute stays. Pure.

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
    """Return the entries that ``cache prune`` removes, which are damaged, old, or exceed the size limit.

    Rounds know the time of the last use to a minute. Here, the limit is exact, and may remove the newest entry too.
    """
    newest_first = sorted(entries, key=lambda info: (info.last_used_s, info.created_ns), reverse=True)
    sizes = itertools.accumulate(info.size_bytes for info in newest_first)
    oldest_s = now_s - max_age_days * _DAY_S
    pairs = zip(newest_first, sizes, strict=True)
    return [info for info, size in pairs if info.is_damaged or info.last_used_s < oldest_s or size > max_size_bytes]


def _read_round(base: str) -> Round:
    """Read the progress of the round, or begin a new round if none is recorded."""
    try:
        now = Round(**json.loads(read_regular(f"{base}/{_STATE}", LARGE)))
        sizes = {str(int(minute)): int(size) for minute, size in now.sizes.items()}
        return Round(str(now.done), sizes, int(now.used_before_s), float(now.ended_s))
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Round()


def _write_round(base: str, now: Round) -> None:
    cache.replace_file(f"{base}/{_STATE}", json.dumps(now._asdict()))
