"""The cache for the ``cache`` commands: its entries, and the text that the commands print about them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from string import hexdigits
from typing import NamedTuple, NoReturn, TypeVar

from be_runtime.errors import ArgumentError, CacheError, LoadError
from be_runtime.kernels import launcher, raw_compiler
from be_runtime.load import obtain, process, registry
from be_runtime.store import cache, eviction, manifest, places, sharing
from be_runtime.store.folder import find_base
from be_toolchain.terminal import many

T = TypeVar("T")

SHORT = 12
"""Digits of a digest in a table."""

KERNELS = ("module", "kernel", "triton", "hip", "numba-cuda", "host-kernel")
"""The kinds of entries that users load; entries of other kinds only make builds faster."""

_FEWEST_DIGITS = 4
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class OpenCache(NamedTuple):
    """The cache of this environment.

    Parameters
    ----------
    session : Session
        The session of a load in this environment.
    now_s : float
        The current time, in seconds since the epoch.
    """

    session: registry.Session
    now_s: float

    @property
    def folder(self) -> Path:
        """The folder of the cache, which may not exist."""
        return self.session.cache.root

    @property
    def stores(self) -> tuple[cache.Cache, cache.Cache]:
        """The store of modules, kernels and their parts, and the store of the toolchain's entries."""
        return self.session.cache, self.session.toolchain_store

    @property
    def imported(self) -> places.Imported:
        """The imported artifacts."""
        return places.Imported(self.folder)

    def entries(self, *, toolchain: bool = True) -> list[eviction.EntryInfo]:
        """List all entries, newest first, with or without the toolchain's."""
        stores = self.stores if toolchain else self.stores[:1]
        found = [info for store in stores for info in store.entries()]
        return sorted(found, key=lambda info: info.created_ns, reverse=True)

    def kernels(self) -> list[eviction.EntryInfo]:
        """List modules, kernels and damaged entries, newest first."""
        return [info for info in self.entries(toolchain=False) if info.is_damaged or info.kind in KERNELS]

    def named(self, name: str, entries: Sequence[eviction.EntryInfo]) -> list[eviction.EntryInfo]:
        """Return the entries of a name.

        Raises
        ------
        ArgumentError
            No entry has the name.
        """
        return [info for info in entries if info.name == name and not info.is_damaged] or self._refuse(name, entries)

    def chosen(self, text: str) -> eviction.EntryInfo:
        """Return the newest entry that has a name, or whose digest begins with a text; kernels come first.

        Raises
        ------
        ArgumentError
            No entry matches, or several digests begin with the text.
        """
        entries = [info for info in self.entries() if not info.is_damaged]
        found = [info for info in entries if info.name == text]
        if not found and len(text) >= _FEWEST_DIGITS:
            found = [info for info in entries if info.digest.startswith(text.lower())]
            digests = sorted({info.digest for info in found})
            if len(digests) > 1:
                shown = ", ".join(digest[:16] for digest in digests)
                raise ArgumentError(f"several entries begin with {text}: {shown}", hints=("write more of the digest",))
        if not found:
            self._refuse(text, entries)
        return next((info for info in found if info.kind in KERNELS), found[0])

    def remove(self, entries: Iterable[eviction.EntryInfo]) -> list[eviction.EntryInfo]:
        """Remove entries, and return the removed ones."""
        doomed = [*entries]
        removed = []
        for store in self.stores:
            base = find_base(str(store.root))
            below = [info for info in doomed if info.path.startswith(f"{base}/")]
            removed += store.remove(below) if below else []
        return removed

    def _refuse(self, name: str, entries: Sequence[eviction.EntryInfo]) -> NoReturn:
        """Raise the error for a name that no entry has."""
        near = get_close_matches(name, sorted({info.name for info in entries if info.name}), n=3)
        hints = [f"did you mean {', '.join(near)}?"] if near else []
        if 0 < len(name) < _FEWEST_DIGITS and not set(name.lower()) - set(hexdigits):
            hints.append(f"for the beginning of a digest, write at least {_FEWEST_DIGITS} digits")
        shown = ("python -m be_runtime cache list --all shows what there is", "BE_CACHE_DIR names another cache")
        raise ArgumentError(f"{self.folder} has no entry named {name}", hints=(*hints, *shown))


def open_cache() -> OpenCache:
    """Find the cache that a load in this environment uses.

    Raises
    ------
    CacheError
        The cache can't be used.
    """
    return OpenCache(process.PROCESS.session(), time.time())


def manifest_of(info: eviction.EntryInfo) -> manifest.Manifest:
    """Return the manifest of an entry.

    Raises
    ------
    CacheError
        The entry was removed after it was listed.
    """
    try:
        return eviction.read_entry(info.path)[0]
    except (OSError, ValueError) as error:
        raise CacheError(f"{info.path} was removed while it was read") from error


def share_of(info: eviction.EntryInfo, session: registry.Session) -> sharing.Shareable:
    """Return the part of an entry that other machines can use.

    Raises
    ------
    LoadError
        The entry is for this machine alone.
    """
    key = eviction.read_key(info.path)
    if key is None:
        raise LoadError(f"{info.name} {info.digest[:SHORT]} has no key that can be read")
    if key.kind in ("module", "native"):
        return obtain.shareable(key, session)
    if key.kind == "numba-cuda":
        return launcher.share_kernel(key, launcher.Origin(key), session)
    origin = raw_compiler.stored_origin(key, session) if key.kind == "kernel" else None
    if origin is None:
        raise LoadError(f"{info.name} {info.digest[:SHORT]} is for this machine alone")
    return launcher.share_kernel(key, origin, session)


def ago(then_s: float, now_s: float) -> str:
    """Return a time as text, relative to now.

    Examples
    --------
    >>> ago(0, 7300), ago(0, 0.4), ago(9, 0)
    ('2 hours ago', 'now', 'in the future')
    """
    spent = int(now_s - then_s)
    for size, unit in _UNITS:
        if spent >= size:
            return f"{many(spent // size, unit)} ago"
    return "in the future" if spent < 0 else "now"


def day(then_s: float, now_s: float) -> str:
    """Return a day as text, relative to today.

    Examples
    --------
    >>> day(5 * 86400, 5 * 86400 + 60), day(0, 3 * 86400)
    ('today', '3 days ago')
    """
    days = (_date(now_s) - _date(then_s)).days
    if days < 0:
        return "in the future"
    return ("today", "yesterday")[days] if days < 2 else f"{many(days, 'day')} ago"


def _date(time_s: float) -> date:
    return datetime.fromtimestamp(time_s).astimezone().date()


def by(made: manifest.Making) -> str:
    """Return the builder of an entry and the time of the build.

    Examples
    --------
    >>> by(manifest.Making("host", 0.14)), by(manifest.Making("host", 0.02, source="process 0 of the job"))
    ('host in 0.14 s', 'host in 0.02 s, from process 0 of the job')
    """
    source = f", from {made.source}" if made.source else ""
    return f"{made.host} in {made.seconds:.2f} s{source}"


def entry_json(info: eviction.EntryInfo) -> dict[str, object]:
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
    """Return a time in the format of ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def with_progress(items: Iterable[T], doing: str) -> Iterable[T]:
    """Iterate over items, and draw a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, doing, console=Console(stderr=True), transient=True)
