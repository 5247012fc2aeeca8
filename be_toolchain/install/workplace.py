"""Working folders of installations: each is locked while its maker lives, so that others can sweep the rest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path

_LOCK = "lock"

WORK = "be-toolchain-work-"
"""How those in the temporary folder begin."""


@contextlib.contextmanager
def make_workplace(parent: Path | None = None, prefix: str = WORK) -> Generator[Path]:
    """Make a working folder, by default in the temporary one, and remove it at the end.

    Raises
    ------
    OSError
        The folder can't be made.
    """
    folder, lock = _make_locked(parent, prefix)
    try:
        yield folder
    finally:
        _empty(folder)
        os.close(lock)


def _make_locked(parent: Path | None, prefix: str) -> tuple[Path, int]:
    """Make a folder and its lock; try again if a sweep came between the two."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        if _take(lock) is not False and os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _take(lock: int) -> bool | None:
    """Take a lock and return whether it was free; None on a file system without locks, where nothing is swept."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def find_dead(parent: Path, prefixes: str | tuple[str, ...] = WORK) -> tuple[Path, ...]:
    """Find the user's working folders in `parent` whose makers are gone."""
    try:
        found = sorted(entry for entry in parent.iterdir() if entry.name.startswith(prefixes))
    except OSError:
        return ()
    return tuple(folder for folder in found if _is_mine(folder) and _is_dead(folder))


def sweep_dead(folders: Iterable[Path]) -> tuple[str, ...]:
    """Remove what killed makers left; return a sentence for each folder that this process removed."""
    return tuple(said for folder in folders if (said := _sweep(folder)))


def _sweep(folder: Path) -> str:
    """Remove one folder under its lock."""
    if not _is_mine(folder):
        return ""
    with contextlib.suppress(OSError):
        folder.rmdir()
        return f"removed {folder}, left by an interrupted installation"
    with _dead_lock(folder) as is_dead:
        if not is_dead:
            return ""
        size_mb = _size_bytes(folder) // 1_000_000
        _empty(folder)
    if folder.exists():
        return f"{folder}, left by an interrupted installation, could not be removed"
    return f"removed {folder} ({size_mb} MB), left by an interrupted installation"


def _is_mine(folder: Path) -> bool:
    """Return whether a path is a folder of the user's, not a link to one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_dead(folder: Path) -> bool:
    """Return whether a folder's maker is gone, or has not locked it yet, in which case it makes another one."""
    with contextlib.suppress(OSError), _dead_lock(folder) as is_dead:
        return is_dead or not any(folder.iterdir())
    return False


@contextlib.contextmanager
def _dead_lock(folder: Path) -> Generator[bool]:
    """Yield whether a folder's maker is gone; if so, hold the folder's lock meanwhile."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield bool(_take(lock))
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    """Remove a folder, its lock last, so that the remains of a killed removal are still known to be dead."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)


def _size_bytes(folder: Path) -> int:
    """Return the disk usage of a folder in bytes."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - as os.walk
    return total
