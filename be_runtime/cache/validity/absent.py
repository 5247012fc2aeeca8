"""Names at which a build found nothing, kept by the folders in which something could appear.

A folder whose times and inode are the recorded ones got no new name, so one stat speaks for all names in it. The names
themselves are looked at where the folder has changed, or changed so shortly before it was recorded that it may have
changed again within one tick of its file system's clock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence

from be_runtime.cache.validity.manifest import AbsentNames


def group_absent(paths: Iterable[str]) -> tuple[tuple[AbsentNames, ...], tuple[str, ...]]:
    """Names by the nearest folder that there is, and the paths at which there is something after all.

    Parameters
    ----------
    paths : iterable of str
        Absolute. One that ends with ``/.`` is a folder that was there, and so is one that could not be used; a link to
        nothing is nothing.
    """
    stamps: dict[str, os.stat_result | None] = {}
    links: dict[str, bool | None] = {}
    names: dict[str, list[str]] = {}
    present: list[str] = []
    rest = list(dict.fromkeys(paths))
    known = set(rest)
    while rest:
        path = rest.pop()
        parent = os.path.dirname(path)
        # The folder's stamp is taken before the name is looked at: a file that appears in between shows in neither.
        folder = _nearest(parent, stamps)
        if path.endswith("/."):
            if folder == parent:
                names.setdefault(folder, [])
            elif _is_there(parent):
                present.append(parent)
            continue
        # Below the folder, nothing is there but perhaps a link to nothing: a file may appear where that leads.
        first = path if folder == parent else path[: path.find("/", len(folder.rstrip("/")) + 1)]
        if first not in links:
            links[first] = _is_link(first)
        if links[first] is None:
            is_there = False
        else:
            is_there = _is_there(path)
            if links[first] and not is_there:
                real = os.path.realpath(first) + path[len(first) :]
                rest += () if real in known else (real,)
                known.add(real)
        if is_there and os.path.isdir(path):
            rest.append(f"{path}/.")
        elif is_there:
            present.append(path)
        else:
            names.setdefault(folder, []).append(path[len(folder.rstrip("/")) + 1 :])
    rows = (_row(folder, stamps[folder], tuple(sorted(found))) for folder, found in sorted(names.items()))
    return tuple(rows), tuple(present)


def new_file(rows: Sequence[AbsentNames], newest_ns: int) -> str:
    """The first path at which there is something now; empty when all are as they were.

    Folders that were apart and are one now, or the other way round, count too: compilers search a folder once.

    Parameters
    ----------
    rows : sequence of AbsentNames
    newest_ns : int
        A folder that changed at this time or later is not proven unchanged by its stamp.
    """
    moved: dict[str, int] = {}
    for folder, mtime_ns, ctime_ns, inode, names in rows:
        try:
            now = os.stat(folder)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            now = None
        except OSError:  # a circle of links, say: a compiler stops there
            if inode:
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
    """The paths that `group_absent` makes some rows of."""
    return tuple(f"{row.folder.rstrip('/')}/{name}" for row in rows for name in (*row.names, "."))


def _is_there(path: str) -> bool:
    """Whether there is something at a path, or a circle of links."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:
        return False
    return True


def _row(folder: str, stamp: os.stat_result | None, names: tuple[str, ...]) -> AbsentNames:
    if stamp is None:
        return AbsentNames(folder, 0, 0, 0, names)
    return AbsentNames(folder, stamp.st_mtime_ns, stamp.st_ctime_ns, stamp.st_ino, names)


def _nearest(folder: str, stamps: dict[str, os.stat_result | None]) -> str:
    """The folder, or the first one above it that there is; its stamp is noted."""
    if folder not in stamps:
        stamps[folder] = _stamp(folder)
    parent = os.path.dirname(folder)
    return folder if stamps[folder] is not None or parent == folder else _nearest(parent, stamps)


def _stamp(folder: str) -> os.stat_result | None:
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


def _is_link(path: str) -> bool | None:
    """Whether there is a link at a path; None where there is nothing."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return None
