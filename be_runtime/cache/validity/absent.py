"""Paths at which a build found nothing, grouped by the folders in which a file could appear.

A folder whose times and inode are the recorded ones has no new name in it, so one stat covers all names in it. The
names themselves are examined if the folder has changed, or if it changed so shortly before it was recorded that it may
have changed again within one tick of its file system's clock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence

from be_runtime.cache.folder.guard import PASSING
from be_runtime.cache.validity.manifest import AbsentNames

_PERHAPS_THERE = PASSING | {errno.ELOOP}


def group_absent(paths: Iterable[str]) -> tuple[tuple[AbsentNames, ...], tuple[str, ...]]:
    """Group paths by their nearest existing folder; the second result has the paths that exist after all.

    Parameters
    ----------
    paths : iterable of str
        Absolute paths. One that ends with ``/.`` is a folder that existed, and so is one that could not be used; if
        it is gone, it is a path as others. A dangling link does not exist.

    Raises
    ------
    OSError
        A network file system failed, so that a folder can't be looked at.
    """
    stamps: dict[str, os.stat_result | None] = {}
    links: dict[str, bool | None] = {}
    names: dict[str, list[str]] = {}
    present: list[str] = []
    rest = list(dict.fromkeys(paths))
    known, gone = set(rest), set[str]()
    while rest:
        path = rest.pop()
        parent = os.path.dirname(path)
        # The folder's stamp is taken before the name is looked at: a file that appears in between shows in neither.
        folder = _nearest(parent, stamps)
        if path.endswith("/."):
            if folder == parent:
                names.setdefault(folder, [])
                continue
            path = parent  # a file may take the name of a folder that is gone
            gone.add(path)
        # Below the folder there is nothing except perhaps a dangling link: a file may appear at its target.
        first = path if folder == os.path.dirname(path) else path[: path.find("/", len(folder.rstrip("/")) + 1)]
        if first not in links:
            links[first] = _is_link(first)
        is_there = links[first] is not None and _is_there(path)
        if links[first] and not is_there:
            real = os.path.realpath(first) + path[len(first) :]
            rest += () if real in known else (real,)
            known.add(real)
        if not is_there:
            names.setdefault(folder, []).append(path[len(folder.rstrip("/")) + 1 :])
        elif os.path.isdir(path) and path not in gone:
            rest.append(f"{path}/.")
        else:
            present.append(path)
    rows = (_row(folder, stamps[folder], tuple(sorted(found))) for folder, found in sorted(names.items()))
    return tuple(rows), tuple(present)


def new_file(rows: Sequence[AbsentNames], newest_ns: int) -> str:
    """Return the first path that exists now; empty if nothing has changed.

    Two folders that have become one, or one that has become two, count too: compilers search a folder once.

    Parameters
    ----------
    rows : sequence of AbsentNames
    newest_ns : int
        Limit for times: the stamp of a folder that changed at this time or later proves nothing.
    """
    moved: dict[str, int] = {}
    for folder, mtime_ns, ctime_ns, inode, names in rows:
        try:
            now = os.stat(folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            now = None  # in another user's folder, this user's compilers find nothing either
        except OSError as error:  # a circle of links, say: a compiler stops there
            if inode or error.errno in PASSING:
                return folder
            continue
        is_same = now is not None and (now.st_mtime_ns, now.st_ctime_ns, now.st_ino) == (mtime_ns, ctime_ns, inode)
        if is_same and mtime_ns < newest_ns and ctime_ns < newest_ns:
            continue
        if now is not None and not stat.S_ISDIR(now.st_mode):
            return folder
        for name in names:
            if _is_there(f"{folder}/{name}"):
                return f"{folder}/{name}"
        if now is None or now.st_ino != inode:
            moved[folder] = now.st_ino if now is not None else -len(moved) - 1
    pairs = {(row.inode, moved.get(row.folder, row.inode)) for row in rows} if moved else set()
    befores, afters = {before for before, _ in pairs}, {after for _, after in pairs}
    return "" if len(pairs) == len(befores) == len(afters) else next(iter(moved))


def absent_paths(rows: Iterable[AbsentNames]) -> tuple[str, ...]:
    """Return the paths from which `group_absent` makes the rows."""
    return tuple(f"{row.folder.rstrip('/')}/{name}" for row in rows for name in (*row.names, "."))


def _is_there(path: str) -> bool:
    """Return whether a path exists, is a loop of links, or can't be looked at."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno in _PERHAPS_THERE
    except ValueError:
        return False
    return True


def _row(folder: str, stamp: os.stat_result | None, names: tuple[str, ...]) -> AbsentNames:
    if stamp is None:
        return AbsentNames(folder, 0, 0, 0, names)
    return AbsentNames(folder, stamp.st_mtime_ns, stamp.st_ctime_ns, stamp.st_ino, names)


def _nearest(folder: str, stamps: dict[str, os.stat_result | None]) -> str:
    """Return the folder, or the nearest existing one above it, and note its stamp."""
    while True:
        if folder not in stamps:
            stamps[folder] = _stamp(folder)
        parent = os.path.dirname(folder)
        if stamps[folder] is not None or parent == folder:
            return folder
        folder = parent


def _stamp(folder: str) -> os.stat_result | None:
    try:
        status = os.stat(folder)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in PASSING:
            raise
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


def _is_link(path: str) -> bool | None:
    """Return whether a path is a link; None if it does not exist."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except ValueError:
        return None
    except OSError as error:
        return False if error.errno in PASSING else None
