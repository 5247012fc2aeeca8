"""Find, fetch or build cache entries, and use them even if other processes remove them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from be_runtime import errors, own_files, trace
from be_runtime.load.registry import Session
from be_runtime.store import cache, keys, lock
from be_runtime.store.folder import IMPORTED, disk_errors, is_passing
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import printable, printable_line

if TYPE_CHECKING:
    from be_runtime.store.places import Exchange
    from be_runtime.store.sharing import Shareable


_LONG_S = 10.0
"""Seconds after which a wait for another thread is reported."""

_TRIES = 5
"""Number of attempts to use an entry that other processes remove."""

_PRUNING_S = 0.02
"""Seconds that a build may spend on the removal of old entries."""


class Recipe(Protocol):
    """The making of an entry."""

    @property
    def key(self) -> keys.CacheKey:
        """The entry's key."""

    def make(self, folder: Path) -> cache.BuildOutput:
        """Build the entry in an empty folder."""

    def share(self) -> Shareable:
        """Return the part of the entry that other machines can use; called only if the settings name a store."""


def find_or_build(recipe: Recipe, store: cache.Cache, session: Session, *, force: bool) -> cache.Entry:
    """Return the entry of a recipe: from the cache, from a place that the settings name, or built now.

    Raises
    ------
    CacheError
        The cache's folder can't be used, or another process takes too long to build the same entry.
    """
    key = recipe.key
    with trace.span("look up", entry=key.name) as found:
        entry = None if force else store.get(key)
        found["result"] = "miss" if entry is None else "hit"
    if entry is not None:
        return entry
    exchange: Exchange | None = None
    is_found = False
    began_ns = time.perf_counter_ns()
    on_wait, patience_s = Waiting(key.name).report, session.settings.lock_timeout_s
    try:
        with store.building(key, force=force, lock_timeout_s=patience_s, on_wait=on_wait) as building:
            trace.note("take the lock", began_ns, time.perf_counter_ns())
            if building.entry is None:
                if _is_shared(session):
                    from be_runtime.store.places import open_exchange

                    places = (session.settings, session.system, say, session.cache.root)
                    exchange = open_exchange(recipe.share, key.name, building.is_there, *places)
                    with trace.span("ask other stores"):
                        is_found = exchange is not None and exchange.get(building, force=force)
                if not is_found:
                    made = recipe.make(building.folder)
                    with trace.span("publish"):
                        building.publish(made)
    except BaseException as error:
        if exchange is not None:
            exchange.abandon(f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    assert building.entry is not None, "a build publishes its entry"
    if exchange is not None:
        with trace.span("share"):
            exchange.put(building.entry)
    return building.entry


def _is_shared(session: Session) -> bool:
    """Return whether another store may have an entry: imported files, the job, or a remote cache."""
    from be_toolchain.remote import RemoteSource, find_remote

    settings = session.settings
    if settings.cluster or Path(session.cache.root, IMPORTED).is_dir():
        return True
    return find_remote(session.system, settings.remote_cache, settings.remote_cache_public_key) != RemoteSource()


class Attempts:
    """Attempts to use an entry, which another process may remove at any time, and a network file system may lose.

    Attributes
    ----------
    must_rebuild : bool
        True after an entry from another store could not be used, so that it is built here.
    """

    def __init__(self, session: Session) -> None:
        self.must_rebuild = False
        self._session, self._left, self._entry = session, _TRIES, ""
        self._is_done = False

    def should_try(self) -> bool:
        """Return True while another attempt should be made.

        Raises
        ------
        CacheError
            The entry was removed each time.
        """
        if self._left == 0 and not self._is_done:
            raise errors.CacheError(
                f"{self._entry} was removed before it was loaded, {_TRIES} times in a row",
                hints=("load again when no other process clears the cache", "or set BE_CACHE_DIR to another folder"),
            )
        self._left -= 1
        return not self._is_done

    @contextlib.contextmanager
    def using(self, entry: cache.Entry) -> Iterator[None]:
        """Run the block with an entry: suppress errors that a retry may avoid, and prune the cache after a build."""
        self._entry = str(entry.path)
        try:
            with disk_errors(self._entry):
                yield
        except Exception as error:
            made = entry.manifest.made
            if made.source and not self.must_rebuild and entry.is_there() and not is_passing(error):
                reason = printable_line(f"{type(error).__name__}: {error}")
                say(f"{entry.manifest.name}: the entry from {made.source} can't be used, so it is built here: {reason}")
                self.must_rebuild = True
            elif not isinstance(error, errors.CacheError | errors.LoadError) or self._is_lasting(error, entry):
                raise
        else:
            self._is_done = True
            if entry.built:
                with trace.span("prune the cache"):
                    _prune(self._session)

    def _is_lasting(self, error: Exception, entry: cache.Entry) -> bool:
        return self._left == 0 if is_passing(error) else entry.is_there()


def _prune(session: Session) -> None:
    """Keep the cache and the toolchain's part of it within their limits, but not an author's own folder."""
    settings = session.settings
    for store in (session.cache, session.toolchain_store):
        with contextlib.suppress(errors.CacheError):  # the next build tries again
            store.prune(settings.cache_max_size_mib * 2**20, settings.cache_max_age_days, patience_s=_PRUNING_S)


def shareable(key: keys.CacheKey, session: Session, folders: Iterable[Path] = ()) -> Shareable:
    """Return the part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
    session : Session
    folders : iterable of Path
        Folders of headers in addition to the folders in the key.
    """
    from be_runtime.store.sharing import Shareable, key_roots, movable_key

    roots = key_roots(key, machine_roots(session.system), folders)
    return Shareable(movable_key(key, roots), roots)


def machine_roots(system: System) -> tuple[tuple[str, str], ...]:
    """Return the folders of this machine that may be elsewhere on another machine, with their names."""
    folders = [(own_files.INCLUDE_DIR.parent, "<be_runtime>")]
    folders += [(folder, "<site>") for folder in system.site_dirs]
    folders += [(folder, "<python>") for folder in system.prefixes]
    return tuple((str(path), name) for folder, name in folders for path in (folder, system.realpath(folder)))


def say(text: str) -> None:
    """Write a line to standard error, with the name of this package."""
    sys.stderr.write(printable(f"be_runtime: {text}\n"))


class Waiting(NamedTuple):
    """A wait for the builder of an entry."""

    name: str

    def report(self, seconds: float, builder: str) -> None:
        """Print to standard error for which process a load waits; for a thread of this process, only after a while."""
        if builder != lock.THIS_PROCESS or seconds >= _LONG_S:
            say(f"{self.name}: waiting for {builder}, which is building it ({seconds:.0f} s)")


def say_output(error: errors.BuildError) -> None:
    """Write the command that failed, and all its output, to standard error."""
    import shlex  # few builds fail

    say(f"{error.message}\n$ {shlex.join(error.command)}\n{error.output.rstrip()}")
