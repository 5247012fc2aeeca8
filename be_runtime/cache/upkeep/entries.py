"""Listing and clearing: the only code that walks the whole cache, never during a load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from be_runtime.cache.folder.key import CacheKey
from be_runtime.cache.folder.layout import KEY, MANIFEST, fan_folder, is_digest, is_fan, key_folder, lock_file
from be_runtime.cache.folder.lock import remove_if_free
from be_runtime.cache.upkeep.staging import discard, sweep
from be_runtime.cache.validity.homes import in_memory
from be_runtime.cache.validity.lookup import variant_folders
from be_runtime.cache.validity.manifest import Making, Manifest, parse_manifest
from be_toolchain.machine.trust.regular_file import LARGE, open_regular, read_regular


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
        Who made it, how long that took, and why.
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
    for digest in filter(is_digest, sorted(_names(f"{base}/{fan}"))):
        for folder in variant_folders(base, digest):
            info = _info(folder, digest)
            if info is not None:
                yield info


def clear(base: str, name: str | None) -> int:
    """Remove the entries of one name, or all entries and the remains of killed builds; return the number of entries."""
    removed = remove(base, [info for info in scan(base) if name is None or info.name == name])
    if name is None:
        sweep(base)
    return len(removed)


def remove(base: str, entries: Iterable[EntryInfo]) -> list[EntryInfo]:
    """Remove entries, and return those that were still there."""
    removed = [info for info in entries if discard(base, info.path, info.digest)]
    for fan in fans(base):
        remove_empty_folders(base, fan)
    return removed


def newest_key(base: str, key: CacheKey) -> CacheKey | None:
    """Return the key of the newest entry of the same kind and name, other than `key` itself."""
    siblings = [
        info for info in scan(base) if (info.kind, info.name) == (key.kind, key.name) and info.digest != key.digest
    ]
    for info in sorted(siblings, key=lambda info: info.created_ns, reverse=True):
        found = read_key(info.path)
        if found is not None and found.digest == info.digest:  # else it is damaged
            return found
    return None


def read_key(folder: str) -> CacheKey | None:
    """Read the key of an entry; None if it is damaged or gone."""
    with contextlib.suppress(OSError, ValueError):
        return CacheKey.from_json(read_regular(f"{folder}/{KEY}").decode())
    return None


def read_entry(folder: str) -> tuple[Manifest, float]:
    """Read an entry's manifest and the time of its last use, without using it.

    Raises
    ------
    OSError, ValueError
        It is gone, or damaged.
    """
    with open_regular(f"{folder}/{MANIFEST}", LARGE) as file:
        return in_memory(parse_manifest(file.read())), os.fstat(file.fileno()).st_mtime


def fans(base: str) -> list[str]:
    """List the names of the existing fan-out folders, sorted."""
    return sorted(filter(is_fan, _names(base)))


def _names(folder: str) -> list[str]:
    """List the names in a folder; none if it is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


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
    """Remove the folders and lock files of keys without entries; a running build makes its own again."""
    for name in _names(f"{base}/{fan}"):
        digest = name.removesuffix(".lock")
        if is_digest(digest):
            with contextlib.suppress(OSError):
                os.rmdir(key_folder(base, digest))
            if not os.path.isdir(key_folder(base, digest)):
                remove_if_free(lock_file(base, digest))
    with contextlib.suppress(OSError):
        os.rmdir(fan_folder(base, fan))
