"""Who may own and write the folders that libraries are loaded from.

A library found in the cache runs as the user, so nobody else may be able to put one there:

- a folder of the user's own (or root's), writable by no one else, is used as it is; a folder writable by the user's
  private group counts as such (group id equal to the user's id, the default of several distributions);
- a sticky folder that everybody may write (mode 1777, as for a cache shared by a container's users) gets a folder
  ``user-<uid>`` below it, which must be a real folder of the user's own, closed to all others;
- a symbolic link is followed only where the user or root made it;
- everything else is refused, also the folder in it that holds the entries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from be_runtime.cache.folder.layout import base_folder, staging_root
from be_runtime.errors import CacheError
from be_toolchain.machine.folder_trust import is_open, is_shared, is_trusted_owner

_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled kernels of brainevent-toolchain. They are built again when deleted.\n"
)
_HINT_OTHER = "set BE_CACHE_DIR to a folder of your own"
_HINTS_FULL = (
    "free some of the disk, such as with be_runtime.clear_cache()",
    "or set BE_CACHE_DIR and TMPDIR to a folder with room",
)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def find_base(root: str) -> str | None:
    """The folder below `root` that holds our entries, or None while the root does not exist.

    Raises
    ------
    CacheError
        Somebody else could put files there.
    """
    uid = os.geteuid()
    shared = _require_safe_root(root, uid)
    if shared is None:
        return None
    home = f"{root}/user-{uid}" if shared else root
    if shared and not _require_own_home(home, uid):
        return None
    base = base_folder(home)
    _require_safe_root(base, uid)  # it may have been made while the root was open to others
    return base


def own_folder(root: str) -> str:
    """The part of the cache's folder that is the user's alone, for files beside our entries; it need not exist.

    Raises
    ------
    CacheError
        Somebody else could put files there.
    """
    uid = os.geteuid()
    if not _require_safe_root(root, uid):
        return root
    home = f"{root}/user-{uid}"
    _require_own_home(home, uid)
    return home


def prepare_base(root: str) -> str:
    """Make the folder that `find_base` finds, with what belongs into it.

    Raises
    ------
    CacheError
        It can't be made or written, or somebody else could put files there.
    """
    uid = os.geteuid()
    with cache_errors(root):
        os.makedirs(root, mode=0o700, exist_ok=True)
        home = root
        if _require_safe_root(root, uid):
            home = f"{root}/user-{uid}"
            make_folder(home)
            _require_own_home(home, uid)
        base = base_folder(home)
        make_folder(base)
        _require_safe_root(base, uid)
        make_folder(staging_root(base))
        _write_tag(f"{base}/CACHEDIR.TAG")
    return base


def make_folder(path: str) -> None:
    """Make one folder for the user alone, unless it exists."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            return
        if os.path.isdir(path):
            return
        if os.path.lexists(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


@contextlib.contextmanager
def cache_errors(path: str) -> Iterator[None]:
    """Say of the operating system's errors in the block that the cache can't be used.

    Raises
    ------
    CacheError
        For an OSError.
    """
    try:
        yield
    except OSError as error:
        raise _from(error, path) from error


@contextlib.contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Say of a full disk in the block that the cache can't be used; other errors of the operating system pass.

    Raises
    ------
    CacheError
        For an OSError that says so.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _from(error, path) from error


def _from(error: OSError, path: str) -> CacheError:
    found = unusable(str(error.filename or path), error.strerror or repr(error))
    if error.errno in _FULL:
        found.hints = _HINTS_FULL
    return found


def root_problem(status: os.stat_result, uid: int) -> str | None:
    """Why a folder with this stat is unfit as a cache's root for the user; None when it is fit. Pure."""
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if not is_trusted_owner(status, uid):
        return f"belongs to {_user(status.st_uid)}, not to {_user(uid)}"
    if is_shared(status) or not is_open(status, uid):
        return None
    return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o}, owner {_user(status.st_uid)})"


def unusable(path: str, problem: str) -> CacheError:
    """The error for a cache folder that can't be used."""
    hints = [_HINT_OTHER]
    if problem.startswith("can be written by"):
        hints.append(f"or close it to others, with all in it: chmod -R go-w {path}")
    if problem.startswith("belongs to"):
        hints.append("or ask its owner to give it to you with chown")
    link = "" if problem.startswith(("is ", "can ", "belongs ")) else "can't be used: "
    return CacheError(f"the cache folder {path} {link}{problem}", hints=tuple(hints))


def _require_safe_root(root: str, uid: int) -> bool | None:
    """Whether the root is shared by all users; None while it does not exist."""
    try:
        status = os.lstat(root)
        if stat.S_ISLNK(status.st_mode):
            if not is_trusted_owner(status, uid):
                raise unusable(root, f"is a symbolic link made by {_user(status.st_uid)}")
            status = os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unusable(root, error.strerror or repr(error)) from error
    problem = root_problem(status, uid)
    if problem is not None:
        raise unusable(root, problem)
    return is_shared(status)


def _require_own_home(home: str, uid: int) -> bool:
    """Whether the user's folder below a shared root exists; it must be the user's, and closed."""
    try:
        status = os.lstat(home)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise unusable(home, f"is not a folder, and was made by {_user(status.st_uid)}")
    if status.st_uid != uid:
        raise unusable(home, f"belongs to {_user(status.st_uid)}, not to {_user(uid)}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise unusable(home, f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})")
    return True


def _user(uid: int) -> str:
    """A user for a message."""
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _write_tag(path: str) -> None:
    """Mark the folder for backup programs: https://bford.info/cachedir/."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(_TAG)
