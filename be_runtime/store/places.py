"""Exchange an entry with other places after a cache miss: imported archives, the job's processes, a remote cache."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
"""Most characters of a message about an archive, which may contain a path of any length."""


@dataclass
class Exchange:
    """The exchange of one entry between this machine and other places.

    Parameters
    ----------
    wanted : WantedEntry
    share : Shareable
    places : sequence of EntryPlace
        Places, in the order in which they are asked.
    offers : bool
        Whether one of the places takes entries that are built here.
    sign : callable, optional
        Signs archives that are made here.
    verify : callable, optional
        Checks the signature of each archive that comes.
    say : callable
        Shows the user the reason that an archive is not used.
    keys_named_by : str
        The setting that names the keys of `verify`.
    """

    wanted: WantedEntry
    share: Shareable
    places: Sequence[EntryPlace]
    offers: bool
    sign: Sign | None
    verify: Verify | None
    say: Callable[[str], object]
    keys_named_by: str = ""
    _asked: list[EntryPlace] = field(default_factory=list, init=False)
    _data: bytes | None = field(default=None, init=False)

    def fetch(self, building: Building, *, force: bool) -> bool:
        """Make the entry from the first place that has it; return False if none has it, or `force` asks for a build."""
        if force:
            self._asked = [*self.places]
            return False
        for place in self.places:
            try:
                data = place.fetch(self.wanted)
                output = unpack_entry(data, self.share, building.folder, place.label, self.verify) if data else None
            except Exception as problem:  # noqa: BLE001 - no answer of a place ends a load
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
        """Show the user the reason that an archive is not used, without the place's secrets."""
        text = str(problem) if isinstance(problem, ArchiveError) else f"can't be used here: {problem!r}"
        for secret in place.secrets:
            text = text.replace(secret, "...")
        remedy = f"; {problem.remedy(self.keys_named_by)}" if isinstance(problem, SignatureError) else ""
        shown = printable_line(f"{self.wanted.name}: the archive from {place.label} {text}"[:_LONGEST])
        self.say(f"{shown}; it is not used{remedy}")

    def offer(self, entry: Entry) -> None:
        """Give an entry that was published here to the places that did not have it."""
        if not self.offers:
            return
        try:
            data = self._data or pack_entry(entry.path, entry.manifest, self.share, self.sign)
        except ArchiveError as problem:
            self.abandon(f"{self.wanted.name} {problem}")
            return
        for place in self._asked:
            place.offer(self.wanted, data)

    def abandon(self, problem: str) -> None:
        """Tell the places that were asked that this process will not offer the entry."""
        for place in self._asked:
            place.abandon(self.wanted, problem)


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
        Shows the user a message.
    cache_dir : Path
        The cache's folder, which also has the imported archives.
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
    """Return the process's one link to the other processes of its job, which remembers the requests."""
    return Job(find_job_store, say, say if verbose else lambda _: None, patience_s=patience_s)
