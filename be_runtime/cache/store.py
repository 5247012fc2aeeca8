"""The build cache: a valid entry at once, or one build however many processes ask.

What only a miss or upkeep needs is imported there: a warm load pays for neither.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from be_runtime.cache.folder.guard import cache_errors, find_base, prepare_base
from be_runtime.cache.folder.key import CacheKey
from be_runtime.cache.folder.lock import Flock, OnWait
from be_runtime.cache.output import BuildOutput
from be_runtime.cache.validity.lookup import Lookup, look_up
from be_runtime.cache.validity.manifest import Manifest
from be_runtime.errors import CacheError

if TYPE_CHECKING:
    from be_runtime.cache.upkeep.entries import EntryInfo

Build = Callable[[Path], BuildOutput]


class Entry(NamedTuple):
    """A valid entry of the cache.

    Parameters
    ----------
    path : Path
        Its folder, which is never changed: a newer build gets another folder.
    manifest : Manifest
        What it holds and what it was made from.
    built : bool
        Whether this very call built it.
    reason : str
        Why it was built, such as ``"/home/me/x.cuh changed"``; empty when it was found.
    """

    path: Path
    manifest: Manifest
    built: bool
    reason: str = ""

    def output(self, name: str) -> Path:
        """The path of one of the build's outputs.

        Raises
        ------
        KeyError
            The build made no such output.
        """
        if name not in self.manifest.outputs.paths:
            raise KeyError(name)
        return self.path / name


class Store(NamedTuple):
    """The entries below one folder. Making a store touches no file.

    Parameters
    ----------
    root : Path
        The cache's folder, made at the first build. See `be_runtime.cache.folder.guard` for who may own it.
    flock : callable
        The locking primitive.
    """

    root: Path
    flock: Flock = fcntl.flock

    def get(self, key: CacheKey) -> Entry | None:
        """The entry of a key if it is valid now: no lock is taken and no process started.

        Raises
        ------
        CacheError
            Another user could put files into the cache's folder.
        """
        found = look_up(find_base(str(self.root)), key.digest)
        return None if found.manifest is None else _entry(found, built=False)

    def get_or_build(
        self,
        key: CacheKey,
        build: Build,
        *,
        force: bool = False,
        lock_timeout_s: float | None = None,
        on_wait: OnWait | None = None,
    ) -> Entry:
        """The entry of a key, built if there is no valid one.

        Parameters
        ----------
        key : CacheKey
            Of the request.
        build : callable
            Called with an empty folder to work in, at most once, while no other process builds the same key.
            What it raises is passed on; nothing of the build stays then.
        force : bool
            Build even if a valid entry exists.
        lock_timeout_s : float, optional
            Longest wait for another process that builds the same key; None waits as long as that process lives.
        on_wait : callable, optional
            Called now and then while waiting, with the seconds waited so far and who builds.

        Raises
        ------
        CacheError
            The cache's folder can't be used, the wait was too long, or the build did not make its outputs.
        """
        entry = None if force else self.get(key)
        if entry is not None:
            return entry
        from be_runtime.cache.builder import build_once

        base = prepare_base(str(self.root))
        found, built = build_once(
            base, key, build, force=force, timeout_s=lock_timeout_s, on_wait=on_wait, flock=self.flock
        )
        return _entry(found, built=built)

    def keep(self, key: CacheKey, build: Build, *, force: bool = False) -> None:
        """`get_or_build` of what saves later builds some work: where there is no room for it, nothing is kept."""
        with contextlib.suppress(CacheError):
            self.get_or_build(key, build, force=force)

    def clear(self, name: str | None = None) -> int:
        """Remove the entries of one module, or all; files that the cache did not write stay.

        Returns
        -------
        int
            The number of entries removed.
        """
        from be_runtime.cache.upkeep.entries import clear

        base = find_base(str(self.root))
        with cache_errors(base):
            return clear(base, name)

    def entries(self) -> Iterator[EntryInfo]:
        """Every entry, valid or not, in no particular order."""
        from be_runtime.cache.upkeep.entries import scan

        return scan(find_base(str(self.root)))

    def prune(
        self,
        max_size_bytes: int | None = None,
        max_age_days: float | None = None,
        *,
        patience_s: float = math.inf,
        now_s: float | None = None,
    ) -> bool:
        """Remove damaged entries, those unused for long, then the longest unused until the rest is small enough.

        Parameters
        ----------
        max_size_bytes : int, optional
            Of all outputs together.
        max_age_days : float, optional
            Since an entry's last use, which is known to a day.
        patience_s : float
            After so many seconds the rest is left to the next call, for which it is noted how far this one came.
        now_s : float, optional
            The time; by default this machine's.

        Returns
        -------
        bool
            Whether nothing is left to do for a day.

        Raises
        ------
        CacheError
            The cache's folder can't be used or written.
        """
        from be_runtime.cache.upkeep.pruning import prune

        base = find_base(str(self.root))
        if not os.path.isdir(base):
            return True
        with cache_errors(base):
            now_s = time.time() if now_s is None else now_s
            return prune(base, max_size_bytes, max_age_days, patience_s=patience_s, now_s=now_s)

    def explain(self, key: CacheKey) -> tuple[str, ...]:
        """What sets `key` apart from the newest entry of the same kind and name, one line a field.

        Reads every manifest, so it is for a person who asks why something is built again.
        """
        from be_runtime.cache.upkeep.entries import newest_key

        older = newest_key(find_base(str(self.root)), key)
        return () if older is None else older.explain(key)


def _entry(found: Lookup, *, built: bool) -> Entry:
    """The entry that a look-up found, or a build made."""
    assert found.manifest is not None, "the look-up found an entry"
    return Entry(path=Path(found.folder), manifest=found.manifest, built=built, reason=found.problem if built else "")
