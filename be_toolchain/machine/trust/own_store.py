"""The folder of managed toolchains on this machine, trusted by the cache's rules, since its programs are run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from be_toolchain.machine.store_paths import ENV_STORE, MANIFEST, store_dir
from be_toolchain.machine.system import System

if TYPE_CHECKING:
    from packaging.version import Version

OTHER_STORE = f"close it to other users with chmod -R go-w, or name a folder of your own with {ENV_STORE}"
"""What to do about a folder that is not trusted."""


class StoreFolder(NamedTuple):
    """The folder of managed toolchains.

    Parameters
    ----------
    path : Path or None
        The folder, or the user's own part of it if it is for all users; None when there is no home.
    problem : str
        Why nothing in it is used; empty when it is used, or does not exist yet.
    """

    path: Path | None
    problem: str = ""


def find_store(system: System) -> StoreFolder:
    """Find the folder of managed toolchains, and judge it."""
    named = store_dir(system.environ)
    if named is None or not system.is_dir(named):
        return StoreFolder(named)
    facts = system.folder_facts(named)
    return StoreFolder(facts.own_part or named, facts.obstacle and f"{named} {facts.obstacle}")


def find_managed(system: System, prefix: str | tuple[str, ...]) -> tuple[str, ...]:
    """List the names in the store that begin with a prefix, newest first; none if the store is not trusted."""
    store = find_store(system)
    if store.path is None or store.problem:
        return ()
    names = [name for name in system.list_dir(store.path) if name.startswith(prefix)]
    return tuple(sorted(names, key=version_in, reverse=True))


def version_in(name: str) -> Version:
    """Return the version in a managed toolchain's name, for comparing; any other text sorts below all versions.

    Examples
    --------
    >>> version_in("cuda-13.1.0rc1") < version_in("cuda-13.1.0")
    True
    """
    from packaging.version import InvalidVersion, Version

    try:
        return Version(name.partition("-")[2])
    except InvalidVersion:
        return Version("0.dev0")


def distrust_managed(system: System, folder: Path) -> str:
    """Return why a toolchain in the store is not used: never finished, or writable by others; else empty."""
    if not system.is_file(folder / MANIFEST):
        return f"not a managed toolchain: no {MANIFEST}"
    return system.folder_facts(folder).obstacle
