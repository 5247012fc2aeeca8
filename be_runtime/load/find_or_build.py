"""The way of a load to an entry: this machine's cache, then the places that share entries, then a build."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from be_runtime.cache import THIS_PROCESS, BuildOutput, CacheKey, Entry, Store, disk_errors, is_passing
from be_runtime.cache.folder.lock import OnWait
from be_runtime.errors import BuildError, CacheError, LoadError
from be_runtime.load.session import Session
from be_runtime.own_files import INCLUDE_DIR
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable, printable_line

if TYPE_CHECKING:
    from be_runtime.sharing.exchange import Exchange
    from be_runtime.sharing.travelling_entry import Shareable

T = TypeVar("T")
Build = Callable[[Path], BuildOutput]

_LONG_S = 10.0
"""Time after which a wait for another thread is reported."""

_TRIES = 5
"""Number of attempts to use an entry that other processes remove."""

_PRUNING_S = 0.02
"""Time that a build may spend on the removal of old entries."""


def find_or_build(
    session: Session,
    store: Store,
    key: CacheKey,
    build: Build,
    share: Callable[[], Shareable],
    *,
    force: bool = False,
    on_wait: OnWait | None = None,
) -> Entry:
    """Return the entry of a key from the cache, from a place that has it, or built now; see `Store.get_or_build`.

    Parameters
    ----------
    share : callable
        Returns the part of the entry that others can use, if there are others.
    """
    opened: list[Exchange] = []

    def obtain(staging: Path) -> BuildOutput | None:
        from be_runtime.sharing.open_places import open_exchange

        exchange = open_exchange(
            share,
            key.name,
            lambda: store.get(key) is not None,
            session.settings,
            session.system,
            say,
            session.cache.root,
        )
        if exchange is None:
            return build(staging)
        opened.append(exchange)
        return exchange.obtain(staging, build, force=force)

    patience_s = session.settings.lock_timeout_s
    try:
        entry = store.get_or_build(key, obtain, force=force, lock_timeout_s=patience_s, on_wait=on_wait)
    except BaseException as error:
        for exchange in opened:
            exchange.abandon(f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    for exchange in opened:
        exchange.offer(entry)
    return entry


def use_entry(
    find: Callable[[], Entry], use: Callable[[Entry], T], session: Session, anew: Callable[[], Entry] | None = None
) -> T:
    """Find or build an entry by `find` and return the result of `use`; try again if it was removed in between.

    Another process may clear the cache at any time, and a network file system may fail. What came from elsewhere and
    can't be used is built by `anew`. A new entry counts towards the cache's limits.

    Raises
    ------
    CacheError
        The entry was removed each time, or can't be read.
    LoadError
        The entry can't be loaded.
    """
    for is_last in (False,) * (_TRIES - 1) + (True,):
        entry = find()
        try:
            with disk_errors(str(entry.path)):
                used = use(entry)
        except Exception as error:
            made = entry.manifest.made
            if made.source and anew and entry.is_there() and not is_passing(error):
                reason = printable_line(f"{type(error).__name__}: {error}")
                say(f"{entry.manifest.name}: the entry from {made.source} can't be used, so it is built here: {reason}")
                find, anew = anew, None
                continue
            if not isinstance(error, CacheError | LoadError) or (is_last if is_passing(error) else entry.is_there()):
                raise
        else:
            if entry.built:
                _prune(session)
            return used
    raise CacheError(
        f"{entry.path} was removed before it was loaded, {_TRIES} times in a row",
        hints=("load again when no other process clears the cache", "or set BE_CACHE_DIR to another folder"),
    )


def _prune(session: Session) -> None:
    """Keep the cache and the toolchain's part of it within their limits; an author's own folder is left alone."""
    settings = session.settings
    for store in (session.cache, session.toolchain_store):
        with contextlib.suppress(CacheError):  # the next build tries again
            store.prune(settings.cache_max_size_mib * 2**20, settings.cache_max_age_days, patience_s=_PRUNING_S)


def shareable(key: CacheKey, session: Session, outputs: tuple[str, ...], folders: Iterable[Path] = ()) -> Shareable:
    """Return the part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
    session : Session
    outputs : tuple of str
        Patterns of the names of the outputs that are shared.
    folders : iterable of Path
        Folders of headers, besides those in the key.
    """
    from be_runtime.sharing.roots import key_roots, movable_key
    from be_runtime.sharing.travelling_entry import Shareable

    roots = key_roots(key, machine_roots(session.system), folders)
    return Shareable(movable_key(key, roots), roots, outputs)


def machine_roots(system: System) -> tuple[tuple[str, str], ...]:
    """Return the folders of this machine that lie elsewhere on another, and their names."""
    folders = [(INCLUDE_DIR.parent, "<be_runtime>")]
    folders += [(folder, "<site>") for folder in system.site_dirs]
    folders += [(folder, "<python>") for folder in system.prefixes]
    return tuple((str(path), name) for folder, name in folders for path in (folder, system.realpath(folder)))


def say(text: str) -> None:
    """Write a line of ours to standard error."""
    sys.stderr.write(printable(f"be_runtime: {text}\n"))


def say_waiting(name: str, seconds: float, builder: str) -> None:
    """Report on standard error whom a load waits for; another thread of this process only after a long wait."""
    if builder != THIS_PROCESS or seconds >= _LONG_S:
        say(f"{name}: waiting for {builder}, which is building it ({seconds:.0f} s)")


def say_output(error: BuildError) -> None:
    """Write the command that failed, and all its output, to standard error."""
    import shlex  # few builds fail

    say(f"{error.message}\n$ {shlex.join(error.command)}\n{error.output.rstrip()}")
