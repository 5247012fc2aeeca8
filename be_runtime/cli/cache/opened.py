"""The user's cache as its commands see it: its two parts, and entries by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from string import hexdigits
from typing import NamedTuple

from be_runtime.cache import CacheKey, Store
from be_runtime.cache.folder.guard import find_base
from be_runtime.cache.upkeep.entries import EntryInfo, read_key
from be_runtime.errors import ArgumentError
from be_runtime.load.process import PROCESS
from be_runtime.load.session import Session
from be_runtime.sharing.imported import Imported

KERNELS = ("module", "kernel", "numba-cuda", "host-kernel")
"""The kinds of what users load; entries of the other kinds save work in builds."""

_FEWEST_DIGITS = 4


class OpenCache(NamedTuple):
    """The cache.

    Parameters
    ----------
    session : Session
        The session of a load in this environment.
    """

    session: Session

    @property
    def folder(self) -> Path:
        """The cache's folder, which need not exist."""
        return self.session.cache.root

    @property
    def stores(self) -> tuple[Store, Store]:
        """The store of modules, kernels and parts of them, and that of what belongs to the toolchain."""
        return self.session.cache, self.session.toolchain_store

    @property
    def imported(self) -> Imported:
        """The imported archives."""
        return Imported(self.folder)

    def stored(self, *, toolchain: bool) -> list[EntryInfo]:
        """List every entry, newest first, also those of the toolchain if they are asked for."""
        stores = self.stores if toolchain else self.stores[:1]
        found = [info for store in stores for info in store.entries()]
        return sorted(found, key=lambda info: info.created_ns, reverse=True)

    def entries(self, *, everything: bool) -> list[EntryInfo]:
        """List modules, kernels and what is damaged, or every entry of both stores, newest first."""
        found = self.stored(toolchain=everything)
        return [info for info in found if everything or info.is_damaged or info.kind in KERNELS]

    def named(self, name: str, entries: Sequence[EntryInfo]) -> list[EntryInfo]:
        """Return the entries of a name.

        Raises
        ------
        ArgumentError
            There is none.
        """
        return [info for info in entries if info.name == name and not info.is_damaged] or self._refuse(name, entries)

    def chosen(self, text: str) -> EntryInfo:
        """Return the newest entry of a name, or of the one digest that begins so; one of a kernel before others.

        Raises
        ------
        ArgumentError
            There is none, or several digests begin so.
        """
        entries = [info for info in self.entries(everything=True) if not info.is_damaged]
        found = [info for info in entries if info.name == text]
        if not found and len(text) >= _FEWEST_DIGITS:
            found = [info for info in entries if info.digest.startswith(text.lower())]
            digests = sorted({info.digest for info in found})
            if len(digests) > 1:
                shown = ", ".join(digest[:16] for digest in digests)
                raise ArgumentError(f"several entries begin with {text}: {shown}", hints=("write more of the digest",))
        return next((info for info in found if info.kind in KERNELS), None) or next(
            iter(found or self._refuse(text, entries))
        )

    def remove(self, entries: Iterable[EntryInfo]) -> list[EntryInfo]:
        """Remove entries, and return those that were still there."""
        doomed = [*entries]
        removed = []
        for store in self.stores:
            base = find_base(str(store.root))
            below = [info for info in doomed if info.path.startswith(f"{base}/")]
            removed += store.remove(below) if below else []
        return removed

    def _refuse(self, name: str, entries: Sequence[EntryInfo]) -> list[EntryInfo]:
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
        It can't be used.
    """
    return OpenCache(PROCESS.session())


def key_of(info: EntryInfo) -> CacheKey | None:
    """Return the key of an entry; None if it can't be read."""
    return read_key(info.path)
