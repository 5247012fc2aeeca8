"""The interface of a place that entries of the cache may come from, besides this machine. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from be_runtime.cache import CacheKey

COME = b""
"""The answer of a place that has found out that the entry is in this machine's cache by now."""


class WantedEntry(NamedTuple):
    """An entry that a build would make.

    Parameters
    ----------
    key : CacheKey
        The movable key, see `be_runtime.sharing.roots.movable_key`. Its digest names the entry outside this machine.
    name : str
        Name for messages.
    has_come : callable
        Returns whether the entry is in this machine's cache by now, as it may be in a folder that machines share.
    """

    key: CacheKey
    name: str
    has_come: Callable[[], bool]


class EntryPlace(Protocol):
    """A place to ask for an entry. It moves bytes, and never fails a load: the caller checks what it brings.

    Attributes
    ----------
    label : str
        Its name in messages, such as ``"https://cache.example.org"``.
    secrets : tuple of str
        Texts that it is sent and may answer with, and that no message shows.
    """

    label: str
    secrets: tuple[str, ...]

    def fetch(self, wanted: WantedEntry) -> bytes | None:
        """Return an archive of the entry, `COME`, or None to build it here."""

    def offer(self, wanted: WantedEntry, data: bytes) -> None:
        """Take an archive of an entry that was made here, or that came from another place."""

    def abandon(self, wanted: WantedEntry, problem: str) -> None:
        """Take notice that there will be no archive: the build failed, or its result is for this machine alone."""
