"""Listing, clearing and pruning: the only code that walks the whole cache, and never on the way of a load."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from be_runtime.cache.key import CacheKey
from be_runtime.cache.layout import KEY, MANIFEST, fan_folder, is_digest, is_fan, key_folder, lock_file
from be_runtime.cache.lock import remove_if_free
from be_runtime.cache.lookup import variant_folders
from be_runtime.cache.manifest import parse_manifest
from be_runtime.cache.staging import discard, sweep

_PRUNE_EVERY_S = 24 * 3600.0
_DAY_S = 24 * 3600.0


class EntryInfo(NamedTuple):
    """One entry in a listing.

    Parameters
    ----------
    path : str
        Its folder.
    digest, kind, name : str
        Of its key; kind and name are empty when the entry is damaged.
    size_bytes : int
        Of its outputs.
    created_ns : int
        When it was built.
    last_used_s : float
        Seconds since the epoch, to a day.
    is_damaged : bool
        Whether its manifest can't be read.
    """

    path: str
    digest: str
    kind: str = ""
    name: str = ""
    size_bytes: int = 0
    created_ns: int = 0
    last_used_s: float = 0.0
    is_damaged: bool = False


class PruneReport(NamedTuple):
    """What pruning did.

    Parameters
    ----------
    removed, kept : int
        Entries.
    freed_bytes, kept_bytes : int
        Of outputs.
    swept : int
        Folders that killed builds had left.
    """

    removed: int = 0
    freed_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    swept: int = 0


def scan(base: str) -> Iterator[EntryInfo]:
    """Every entry."""
    for digest in _digests(base):
        for folder in variant_folders(base, digest):
            info = _info(folder, digest)
            if info is not None:
                yield info


def clear(base: str, name: str | None) -> int:
    """Remove the entries of one name, or all with whatever killed builds left; the number removed."""
    removed = sum(_remove(base, info) for info in scan(base) if name is None or info.name == name)
    if name is None:
        sweep(base)
    _remove_empty_folders(base)
    return removed


def prune(base: str, max_size_bytes: int | None, max_age_days: float | None) -> PruneReport:
    """Remove entries by damage, age and size, and abandoned staging folders."""
    _note_prune(base)
    entries = list(scan(base))
    doomed = choose_doomed(entries, max_size_bytes, max_age_days, now_s=time.time())
    gone = [info for info in doomed if _remove(base, info)]
    swept = sweep(base)
    _remove_empty_folders(base)
    total, freed = sum(info.size_bytes for info in entries), sum(info.size_bytes for info in gone)
    return PruneReport(
        removed=len(gone),
        freed_bytes=freed,
        kept=len(entries) - len(gone),
        kept_bytes=total - freed,
        swept=swept,
    )


def choose_doomed(
    entries: list[EntryInfo], max_size_bytes: int | None, max_age_days: float | None, *, now_s: float
) -> list[EntryInfo]:
    """The entries to remove: damaged, too old, then the longest unused until the rest fits. Pure."""
    oldest_s = 0.0 if max_age_days is None else now_s - max_age_days * _DAY_S
    doomed = [info for info in entries if info.is_damaged or info.last_used_s < oldest_s]
    kept = sorted(
        (info for info in entries if not info.is_damaged and info.last_used_s >= oldest_s),
        key=lambda info: (info.last_used_s, info.created_ns),
    )
    excess = 0 if max_size_bytes is None else sum(info.size_bytes for info in kept) - max_size_bytes
    for info in kept:
        if excess <= 0:
            break
        doomed.append(info)
        excess -= info.size_bytes
    return doomed


def is_prune_due(base: str) -> bool:
    """Whether the last pruning was more than a day ago, or never."""
    try:
        return time.time() - os.stat(_prune_stamp(base)).st_mtime > _PRUNE_EVERY_S
    except FileNotFoundError:
        return os.path.isdir(base)


def newest_key(base: str, key: CacheKey) -> CacheKey | None:
    """The key of the newest entry of the same kind and name, other than `key` itself."""
    siblings = [
        info for info in scan(base) if (info.kind, info.name) == (key.kind, key.name) and info.digest != key.digest
    ]
    for info in sorted(siblings, key=lambda info: info.created_ns, reverse=True):
        with contextlib.suppress(OSError, ValueError), open(f"{info.path}/{KEY}", encoding="utf-8") as file:
            return CacheKey.from_json(file.read())
    return None


def _digests(base: str) -> Iterator[str]:
    """Every key that has a folder."""
    for fan in sorted(filter(is_fan, _names(base))):
        yield from sorted(filter(is_digest, _names(f"{base}/{fan}")))


def _names(folder: str) -> list[str]:
    """The names in a folder; none when it is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _info(folder: str, digest: str) -> EntryInfo | None:
    """One entry's line; None when it vanished meanwhile."""
    try:
        with open(f"{folder}/{MANIFEST}", "rb") as file:
            last_used_s = os.fstat(file.fileno()).st_mtime
            manifest = parse_manifest(file.read())
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
    )


def _remove(base: str, info: EntryInfo) -> bool:
    """Remove one entry; False when another process was first."""
    return discard(base, info.path, info.digest)


def _remove_empty_folders(base: str) -> None:
    """Remove the folders and lock files of keys without entries; builds that run now make theirs anew."""
    for fan in filter(is_fan, _names(base)):
        for name in _names(f"{base}/{fan}"):
            digest = name.removesuffix(".lock")
            if is_digest(digest):
                with contextlib.suppress(OSError):
                    os.rmdir(key_folder(base, digest))
                if not os.path.isdir(key_folder(base, digest)):
                    remove_if_free(lock_file(base, digest))
        with contextlib.suppress(OSError):
            os.rmdir(fan_folder(base, f"{fan}"))


def _prune_stamp(base: str) -> str:
    """The file whose modification time is that of the last pruning."""
    return f"{base}/last-prune"


def _note_prune(base: str) -> None:
    """Set the time of the last pruning, before it begins, so that of many processes one prunes."""
    with contextlib.suppress(OSError):
        descriptor = os.open(_prune_stamp(base), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)
