"""The places that the settings name, opened at a miss of the cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from be_runtime.settings import Settings
from be_runtime.sharing.exchange import Exchange
from be_runtime.sharing.imported import Imported
from be_runtime.sharing.job import Job
from be_runtime.sharing.place import EntryPlace, WantedEntry
from be_runtime.sharing.remote import name_remote, open_remote, open_signer, open_verifier
from be_runtime.sharing.travelling_entry import Shareable
from be_runtime.xla.coordination import find_job_store
from be_toolchain.machine.system import System


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
