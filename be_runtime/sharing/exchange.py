"""One miss of the cache: the places that may have the entry are asked in order, and are given what is made here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from be_runtime.cache import BuildOutput, Entry
from be_runtime.sharing.archive import ArchiveError, Sign, SignatureError, Verify
from be_runtime.sharing.place import COME, EntryPlace, WantedEntry
from be_runtime.sharing.travelling_entry import Shareable, pack_entry, unpack_entry
from be_toolchain.terminal import printable_line

Build = Callable[[Path], BuildOutput]

_LONGEST = 600
"""Most characters of a message about an archive, which may name a path of its own."""


class Exchange:
    """The way of one entry between this machine and others.

    Parameters
    ----------
    wanted : WantedEntry
    share : Shareable
    places : sequence of EntryPlace
        Places in the order in which they are asked.
    offers : bool
        Whether one of them takes what is made here.
    sign : callable, optional
        Signs archives that are made here.
    verify : callable, optional
        Checks the signature of each archive that comes.
    keys_named_by : str
        The setting that names its keys.
    say : callable
        Function that tells the user why an archive is not used.
    """

    def __init__(
        self,
        wanted: WantedEntry,
        share: Shareable,
        places: Sequence[EntryPlace],
        *,
        offers: bool,
        sign: Sign | None,
        verify: Verify | None,
        keys_named_by: str = "",
        say: Callable[[str], object],
    ) -> None:
        self._wanted, self._share, self._places, self._offers = wanted, share, places, offers
        self._sign, self._verify, self._keys_named_by, self._say = sign, verify, keys_named_by, say
        self._asked: list[EntryPlace] = []
        self._data: bytes | None = None

    def obtain(self, staging: Path, build: Build, *, force: bool) -> BuildOutput | None:
        """Return the entry's outputs from the first place that has them, else from a build; by `force`, from a build.

        Returns
        -------
        BuildOutput or None
            None if the entry is in the cache by now.
        """
        if force:
            self._asked = [*self._places]
            return build(staging)
        for place in self._places:
            try:
                data = place.fetch(self._wanted)
                if data == COME:
                    return None
                if data:
                    output = unpack_entry(data, self._share, staging, place.label, self._verify)
                    self._data = data
                    return output
            except Exception as problem:  # noqa: BLE001 - whatever comes from elsewhere ends no load
                shutil.rmtree(staging)
                staging.mkdir(mode=0o700)
                self._report(place, problem)
            self._asked.append(place)
        return build(staging)

    def _report(self, place: EntryPlace, problem: Exception) -> None:
        text = str(problem) if isinstance(problem, ArchiveError) else f"can't be used here: {problem!r}"
        for secret in place.secrets:
            text = text.replace(secret, "...")
        remedy = f"; {problem.remedy(self._keys_named_by)}" if isinstance(problem, SignatureError) else ""
        shown = printable_line(f"{self._wanted.name}: the archive from {place.label} {text}"[:_LONGEST])
        self._say(f"{shown}; it is not used{remedy}")

    def offer(self, entry: Entry) -> None:
        """Give an entry that was published here to the places that had none."""
        if not self._offers:
            return
        try:
            data = self._data or pack_entry(entry.path, entry.manifest, self._share, self._sign)
        except ArchiveError as problem:
            self.abandon(f"{self._wanted.name} {problem}")
            return
        for place in self._asked:
            place.offer(self._wanted, data)

    def abandon(self, problem: str) -> None:
        """Tell the places that were asked that nothing will come from here."""
        for place in self._asked:
            place.abandon(self._wanted, problem)
