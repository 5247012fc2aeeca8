"""The trust rules for files and folders: stats in, a reason for distrust out. Pure.

The user and root are trusted. Libraries are loaded from a folder, and a project's file names programs that are run;
both are believed only where nobody else owns them or may write to them. A folder for libraries or toolchains

- is used as it is if the user or root owns it and nobody else may write to it; the user's private group (group id equal
  to the user's id, the default of several distributions) may;
- has a subfolder ``user-<uid>`` if everybody may write to it and it is sticky (mode 1777, as for a cache shared by a
  container's users); the subfolder must be a real folder that the user owns and nobody else may write to;
- may be a symbolic link that the user or root made;
- is refused otherwise.

The folders and links that lead to it are judged up to the root, as sshd judges those of keys: whoever may write to one
of them could put another folder in its place.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from be_toolchain.machine.system import FolderFacts

_ROOT_UID = 0
_STICKY_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LOADER_TOKENS = r"\$(?:\{(?:ORIGIN|LIB|PLATFORM)\}|(?:ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"
"""Names that dlopen replaces in a path: https://man7.org/linux/man-pages/man8/ld.so.8.html, dynamic string tokens."""


def distrust(status: os.stat_result, uid: int, *, link: os.stat_result | None = None) -> str:
    """Return the reason why libraries are not loaded from a folder; empty when they are.

    Parameters
    ----------
    status : os.stat_result
        The folder's status, links followed.
    uid : int
        The user's id.
    link : os.stat_result, optional
        The status of the symbolic link that leads to the folder.

    Returns
    -------
    str
        The text that follows the folder's name in a message.

    Examples
    --------
    >>> open_to_all = os.stat_result((0o40777, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    >>> distrust(open_to_all, 1000)
    'can be written by other users (mode 777)'
    """
    if link is not None and not is_trusted_owner(link, uid):
        return distrust_entry(link, uid)
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    return "" if is_shared(status) and is_trusted_owner(status, uid) else distrust_entry(status, uid)


def distrust_entry(status: os.stat_result, uid: int) -> str:
    """Return the reason why one file, folder or link is not trusted; empty when it is.

    Examples
    --------
    >>> distrust_entry(os.stat_result((0o120777, 0, 0, 1, 1001, 1001, 0, 0, 0, 0)), 1000)
    'is a symbolic link made by another user (uid 1001)'
    """
    problem = distrust_owner(status, uid)
    if problem or stat.S_ISLNK(status.st_mode) or not is_open(status, uid):
        return problem
    return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"


def distrust_owner(status: os.stat_result, uid: int) -> str:
    """Return the reason why the owner of a file or link is not trusted, whoever may write to it; empty if he is.

    Examples
    --------
    >>> distrust_owner(os.stat_result((0o100666, 0, 0, 1, 1001, 1001, 0, 0, 0, 0)), 1000)
    'belongs to another user (uid 1001)'
    """
    if is_trusted_owner(status, uid):
        return ""
    verb = "is a symbolic link made by" if stat.S_ISLNK(status.st_mode) else "belongs to"
    return f"{verb} another user (uid {status.st_uid})"


def distrust_secret(status: os.stat_result, uid: int) -> str:
    """Return the reason why a user's file is no secret, as ssh sees it; empty when it is one.

    Examples
    --------
    >>> distrust_secret(os.stat_result((0o100644, 0, 0, 1, 1000, 1000, 0, 0, 0, 0)), 1000)
    'can be read by other users (mode 644)'
    """
    if status.st_uid != uid or not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return ""
    return f"can be read by other users (mode {stat.S_IMODE(status.st_mode):o})"


def distrusted_places(trail: Iterable[tuple[str, os.stat_result]], uid: int, *homes: str) -> Iterator[tuple[str, str]]:
    """Yield what of the way to a file, and the file, another user could exchange, each with the reason.

    Parameters
    ----------
    trail : iterable of (path, os.stat_result)
        Each folder from the root on, each link on the way, and the file. Whoever owns one of them, or may write to
        it, could put another file there.
    uid : int
        The user's id.
    *homes : str
        Paths of the user's home folder. The folders above it are the administrator's choice: whoever could exchange
        one of them has all that is the user's.

    Examples
    --------
    >>> theirs = os.stat_result((0o40755, 0, 0, 1, 1001, 1001, 0, 0, 0, 0))
    >>> list(distrusted_places([("/data/project", theirs)], 1000))
    [('/data/project', 'belongs to another user (uid 1001)')]
    """
    sticky = False
    for path, status in trail:
        if any(home.startswith(f"{path.rstrip('/')}/") for home in homes):
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder:
            sticky = bool(status.st_mode & stat.S_ISVTX) and is_open(status, uid)
        if not is_trusted_owner(status, uid):
            yield path, distrust_entry(status, uid)
        elif is_folder and sticky:
            continue
        elif sticky and not stat.S_ISLNK(status.st_mode):
            # Only its owner can replace it, but whoever can move a file of the user's could have put it there.
            yield path, "is in a folder that other users may write to; one of your own is safe"
        elif problem := distrust_entry(status, uid):
            yield path, problem


def is_trusted_owner(status: os.stat_result, uid: int) -> bool:
    """Return whether a file belongs to the user, or to root, who could do anything anyway."""
    return status.st_uid in (uid, _ROOT_UID)


def is_open(status: os.stat_result, uid: int) -> bool:
    """Return whether others than the user may write; a private group of the user's does not count as others."""
    return _others_may(status, uid, stat.S_IWOTH, stat.S_IWGRP)


def is_closed(status: os.stat_result, uid: int) -> bool:
    """Return whether nobody but the user may enter a folder, and so reach what is below it."""
    return not _others_may(status, uid, stat.S_IXOTH, stat.S_IXGRP)


def _others_may(status: os.stat_result, uid: int, bit: int, group_bit: int) -> bool:
    """Return whether others than the user have a permission, given as its bit for all and its bit for the group."""
    private_group = status.st_gid == status.st_uid == uid != _ROOT_UID
    return bool(status.st_mode & (bit if private_group else bit | group_bit))


def is_shared(status: os.stat_result) -> bool:
    """Return whether a folder is for all users, like the temporary one: each has a folder of their own in it."""
    return status.st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL


def own_part(folder: str, uid: int) -> str:
    """Return the user's folder in a shared one."""
    return f"{folder}/user-{uid}"


def distrust_own_part(status: os.stat_result, uid: int) -> str:
    """Return why libraries are not loaded from the user's part of a shared folder, links not followed, else empty."""
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != uid:
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def against_libraries(facts: FolderFacts) -> Iterator[str]:
    """Yield the reasons against keeping libraries in a folder; each text follows the folder's name in a message.

    Examples
    --------
    >>> from pathlib import Path
    >>> from be_toolchain.machine.system import FolderFacts
    >>> list(against_libraries(FolderFacts(path=Path("/a/b"), standing=Path("/a"), writable=False)))
    ["can't be made: /a can't be written"]
    """
    path = str(facts.path)
    token = re.search(_LOADER_TOKENS, path) if "$" in path else None  # compiled only where a path may have one
    if token is not None:
        yield f"holds {token[0]}, which the dynamic loader replaces"
    if facts.obstacle:
        yield facts.obstacle
    else:
        yield from against_building(facts)


def against_building(facts: FolderFacts) -> Iterator[str]:
    """Yield the reasons against writing and running files in a folder, whoever else may write to it."""
    if not facts.writable:
        is_there = facts.standing == facts.path
        yield "can't be written" if is_there else f"can't be made: {facts.standing} can't be written"
    if not facts.executable:
        yield "is mounted noexec: libraries built there can't be loaded"
