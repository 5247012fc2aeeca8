"""The places that the settings name, opened at a miss of the cache."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from be_runtime.jax.coordination import find_job_store
from be_runtime.settings import Settings
from be_runtime.store.archive import ArchiveError, Sign, SignatureError, Verify
from be_runtime.store.cache import Entry
from be_runtime.store.job import Job
from be_runtime.store.publish import Building
from be_runtime.store.remote import name_remote, open_remote, open_signer, open_verifier
from be_runtime.store.travelling import COME, EntryPlace, Imported, Shareable, WantedEntry, pack_entry, unpack_entry
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable_line

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

    def fetch(self, building: Building, *, force: bool) -> bool:
        """Make the entry of what the first place has; return False if none has it, or a build is wanted by `force`."""
        if force:
            self._asked = [*self._places]
            return False
        for place in self._places:
            try:
                data = place.fetch(self._wanted)
                output = unpack_entry(data, self._share, building.folder, place.label, self._verify) if data else None
            except Exception as problem:  # noqa: BLE001 - whatever comes from elsewhere ends no load
                shutil.rmtree(building.folder)
                building.folder.mkdir(mode=0o700)
                self._report(place, problem)
                output = None
            else:
                if data == COME:
                    building.take()
                    return True
            if output is not None:
                self._data = data
                building.publish(output)
                return True
            self._asked.append(place)
        return False

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


def open_exchange(
    share: Callable[[], Shareable],
    name: str,
    has_come: Callable[[], bool],
    settings: Settings,
    system: System,
    say: Callable[[str], object],
    cache_dir: Path,
) -> Exchange | None:
    """Open the places that may have an entry; None if there are none.

    Parameters
    ----------
    share : callable
        Returns the part of the entry that is shared; called only if there is a place.
    name : str
        Name for messages.
    has_come : callable
        Returns whether the entry is in this machine's cache by now.
    settings : Settings
    system : System
    say : callable
        Function that tells the user something.
    cache_dir : Path
        The cache's folder, beside which imported archives are.
    """
    source = name_remote(settings, system, say)
    imported = Imported(cache_dir)
    places: list[EntryPlace] = [imported] if imported.is_there else []
    if settings.cluster:
        places.append(_open_job(say, settings.compile_timeout_s, verbose=settings.verbose))
    remote = open_remote(source, settings, say)
    if remote is not None:
        places.append(remote)
    if not places:
        return None
    shared = share()
    return Exchange(
        WantedEntry(shared.key, name, has_come),
        shared,
        places,
        offers=settings.shares,
        sign=open_signer(settings, system, say),
        verify=open_verifier(source),
        keys_named_by=source.keys_named_by,
        say=say,
    )


@functools.lru_cache(maxsize=2)
def _open_job(say: Callable[[str], object], patience_s: float, *, verbose: bool) -> Job:
    """Return the process's way to the others of its job, which remembers what it was asked for."""
    return Job(find_job_store, say, say if verbose else lambda _: None, patience_s=patience_s)
