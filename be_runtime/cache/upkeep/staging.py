"""Folders of builds in progress: made, removed after the build, and swept if their process was killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable

from be_runtime.cache.folder.guard import make_folder, move
from be_runtime.cache.folder.layout import MANIFEST, staging_root
from be_runtime.cache.folder.lock import THIS_PROCESS

_NAME = re.compile(r"(?P<short>[0-9a-f]{16})\.(?P<host>[0-9a-f]{8})\.(?P<pid>[0-9]+)\.(?P<random>[0-9a-f]{8})")

_UNFINISHED = re.compile(r"(?:manifest|pruning)\.json\.[0-9a-f]{8}")
"""Files of `be_runtime.cache.validity.lookup.replace_private` before they get their names."""

DEAD_OWNER_AGE_S = 3600.0
"""Time for which a dead owner's folder is kept: a live process in a container with our host name may look dead."""

ANY_OWNER_AGE_S = 48 * 3600.0
"""Time after which any folder is removed, also another host's: no build takes this long."""


def make_staging(base: str, digest: str) -> str:
    """Make a folder for one build, to be removed with `remove_tree`."""
    path = f"{staging_root(base)}/{_new_name(digest)}"
    make_folder(path)
    return path


def discard(base: str, path: str, digest: str) -> bool:
    """Move an entry aside in one step, then delete it; False if it was gone already.

    Raises
    ------
    OSError
        It can't be removed.
    """
    aside = f"{staging_root(base)}/{_new_name(digest)}"
    try:
        move(path, aside)
    except OSError:
        if not os.path.isdir(path):
            return False
        # A full disk, or a folder of a lower layer of an overlay: without a manifest it is no entry.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}/{MANIFEST}")
        aside = path
    remove_tree(aside)
    return True


def remove_tree(path: str) -> None:
    """Delete a folder and its contents; files that can't be deleted now are swept later."""
    import shutil

    for _ in range(2):  # a network file system may fail once
        with contextlib.suppress(OSError):  # which rmtree passes on for the folder itself
            shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return


def builder_of(base: str, digest: str) -> str:
    """Name the process that builds a key now, for a message."""
    with contextlib.suppress(OSError):
        for name in os.listdir(staging_root(base)):
            match = _NAME.fullmatch(name)
            if match and match["short"] == digest[:16]:
                pid = int(match["pid"])
                if match["host"] != host_id():
                    return f"process {pid} on another host"
                if is_alive(pid):
                    return THIS_PROCESS if pid == os.getpid() else f"process {pid}"
    return "another process"


def sweep(base: str, *, now_s: float | None = None) -> int:
    """Remove the folders that killed processes left, and return their number."""
    removed = 0
    now_s = time.time() if now_s is None else now_s
    sweep_unfinished(base)
    with contextlib.suppress(FileNotFoundError), os.scandir(staging_root(base)) as items:
        for item in items:
            with contextlib.suppress(OSError):
                age_s = now_s - item.stat(follow_symlinks=False).st_mtime
                if is_abandoned(item.name, age_s, host=host_id(), is_alive=is_alive):
                    remove_tree(item.path)
                    removed += 1
    return removed


def sweep_unfinished(folder: str) -> None:
    """Remove the files that killed processes left in a folder before they had their names."""
    with contextlib.suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if _UNFINISHED.fullmatch(item.name) and time.time() - item.stat().st_mtime > DEAD_OWNER_AGE_S:
                os.unlink(item.path)


def is_abandoned(name: str, age_s: float, *, host: str, is_alive: Callable[[int], bool]) -> bool:
    """Return whether a staging folder's process is gone; False for any other folder. Pure."""
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    if age_s > ANY_OWNER_AGE_S:
        return True
    return match["host"] == host and age_s > DEAD_OWNER_AGE_S and not is_alive(int(match["pid"]))


def is_alive(pid: int) -> bool:
    """Return whether a process of this host has the id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def host_id() -> str:
    """Return eight digits that stand for the host's name."""
    return hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]


def _new_name(digest: str) -> str:
    """Make a name that no other build has."""
    return f"{digest[:16]}.{host_id()}.{os.getpid()}.{os.urandom(4).hex()}"
