"""The way of a load to an entry: this machine's cache, then the places that share entries, then a build."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.cache import BuildOutput, CacheKey, Entry, Store
from be_runtime.cache.folder.lock import OnWait
from be_runtime.load.session import Session
from be_runtime.own_files import INCLUDE_DIR
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable

if TYPE_CHECKING:
    from be_runtime.sharing.exchange import Exchange
    from be_runtime.sharing.travelling_entry import Shareable

Build = Callable[[Path], BuildOutput]


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


def shareable(
    key: CacheKey, session: Session, outputs: tuple[str, ...] = (), folders: Iterable[Path] = ()
) -> Shareable:
    """Return the part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
    session : Session
    outputs : tuple of str
        The outputs that are shared; all of them if it is empty.
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
