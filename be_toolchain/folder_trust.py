"""Whether another user could put a file into a folder from which libraries are loaded. Pure: stats in, a reason out."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT_UID = 0
_STICKY_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH


def distrust(status: os.stat_result, uid: int, *, link: os.stat_result | None = None) -> str:
    """Why the runtime refuses a folder that exists as its cache, empty when it doesn't.

    Parameters
    ----------
    status : os.stat_result
        Of the folder, links followed.
    uid : int
        The user.
    link : os.stat_result, optional
        Of the symbolic link that leads to it.

    Returns
    -------
    str
        What follows the folder's name in a message.

    Examples
    --------
    >>> open_to_all = os.stat_result((0o40777, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    >>> distrust(open_to_all, 1000)
    'can be written by other users (mode 777)'
    """
    if link is not None and link.st_uid not in (uid, _ROOT_UID):
        return f"is a symbolic link made by another user (uid {link.st_uid})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid not in (uid, _ROOT_UID):
        return f"belongs to another user (uid {status.st_uid})"
    if is_shared(status) or not is_open(status, uid):
        return ""
    return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"


def is_open(status: os.stat_result, uid: int) -> bool:
    """Whether others than the user may write: a group of the user's own, as several distributions make it, is none."""
    private_group = status.st_gid == status.st_uid == uid != _ROOT_UID
    return bool(status.st_mode & (stat.S_IWOTH if private_group else stat.S_IWOTH | stat.S_IWGRP))


def is_shared(status: os.stat_result) -> bool:
    """Whether a folder is for all users, like the temporary one: each has a folder of their own in it."""
    return status.st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL


def own_part(folder: Path, uid: int) -> Path:
    """The user's folder in one that is shared."""
    return folder / f"user-{uid}"


def distrust_own_part(status: os.stat_result, uid: int) -> str:
    """Why the runtime refuses the user's folder in a shared one, links not followed; empty when it doesn't."""
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != uid:
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return ""
