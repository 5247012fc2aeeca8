"""Folders that libraries are loaded from: found, made, or refused by the rules of `machine.trust.folder_trust`.

A library found in the cache runs as the user, so nobody else may be able to put one there, neither in the cache's root
nor in the folder in it that contains the entries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from be_runtime.cache.folder.layout import base_folder, staging_root
from be_runtime.errors import CacheError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.folder_trust import distrust, distrust_own_part, is_shared, own_part
from be_toolchain.machine.trust.safe_folders import how_to_vouch

T = TypeVar("T")

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
_TRIES = 3

PASSING = frozenset({errno.EIO, errno.ESTALE})
"""Errors of network file systems that may be gone at the next attempt, or hide that an operation was done."""


def find_base(root: str) -> str:
    """Find the folder below `root` that contains our entries; it need not exist.

    Raises
    ------
    CacheError
        Somebody else could put files there.
    """
    base = base_folder(own_folder(root))
    _look(base)  # it may have been made while the root was open to others
    return base


def own_folder(root: str) -> str:
    """Find the part of the cache's folder that belongs to the user alone; it need not exist.

    Raises
    ------
    CacheError
        Somebody else could put files there.
    """
    _require_way_once(root)
    status = _look(root)
    if status is None or not is_shared(status):
        return root
    own = own_part(root, os.geteuid())
    with contextlib.suppress(FileNotFoundError):
        problem = distrust_own_part(os.lstat(own), os.geteuid())
        if problem:
            raise unusable(own, problem)
    return own


def prepare_base(root: str) -> str:
    """Make the folder that `find_base` finds, with its initial contents.

    Raises
    ------
    CacheError
        It can't be made or written, or somebody else could put files there.
    """
    with cache_errors(root):
        return repeatedly(lambda: _prepare(root))


def _prepare(root: str) -> str:
    own_folder(root)  # nothing is made where it is refused
    make_way(root)
    _require_way(root)  # as it is now, whoever made it
    own = own_folder(root)
    if own != root:
        make_folder(own)
    make_folder(base_folder(own))
    base = find_base(root)  # as it is now, whoever made it
    make_folder(staging_root(base))
    _write_tag(f"{base}/CACHEDIR.TAG")
    return base


def make_way(path: str) -> None:
    """Make a folder, and the missing ones that lead to it, as `make_folder` does."""
    try:
        make_folder(path)
    except FileNotFoundError:
        for folder in (*reversed(Path(path).parents), path):
            make_folder(str(folder))


def make_folder(path: str) -> None:
    """Make a folder that only the user can access, unless it exists."""
    while True:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            if not isinstance(error, FileExistsError) and not os.path.isdir(path):
                raise
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(path).st_mode):
                return
        if os.path.lexists(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def move(old: str, new: str) -> None:
    """Rename to a name that nobody else uses; an error after which the new name is there was a reply that got lost."""
    for is_last in (False, True):
        try:
            os.rename(old, new)
        except OSError:
            if os.path.lexists(new):
                return
            if is_last:
                raise
        else:
            return


def repeatedly(step: Callable[[], T]) -> T:
    """Return the result of a step that may be repeated: a few times, as long as its errors are passing ones."""
    for _ in range(_TRIES - 1):
        try:
            return step()
        except (CacheError, OSError) as error:
            if not is_passing(error):
                raise
    return step()


def is_passing(error: BaseException) -> bool:
    """Return whether an error, or its cause, is one that may be gone at the next attempt.

    The dynamic loader's errors have no number, only its text.
    """
    return any(os.strerror(code) in str(error.__cause__ or error) for code in PASSING)


@contextlib.contextmanager
def cache_errors(path: str) -> Iterator[None]:
    """Convert the operating system's errors in the block to errors of the cache.

    Raises
    ------
    CacheError
        The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise _from(error, path) from error


@contextlib.contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Convert errors of the disk, and of files below `path`, to errors of the cache; others are passed on.

    Raises
    ------
    CacheError
        The block raised such an OSError.
    """
    try:
        yield
    except OSError as error:
        is_below = str(error.filename or "").startswith(f"{path}/")
        if error.errno not in _FULL | PASSING and not is_below:
            raise
        raise _from(error, path) from error


def _from(error: OSError, path: str) -> CacheError:
    name = str(error.filename or "")
    found = unusable(name if name.startswith("/") else path, error.strerror or repr(error))
    if error.errno in _FULL:
        found.hints = _HINTS_FULL
    return found


def unusable(path: str, problem: str, more_hints: tuple[str, ...] = ()) -> CacheError:
    """Make the error for a cache folder that can't be used."""
    hints = [_HINT_OTHER, *more_hints]
    if problem.startswith("can be written by"):
        hints.append(f"or close it to others, with all in it: chmod -R go-w {path}")
    if problem.startswith("belongs to"):
        hints.append("or ask its owner to give it to you with chown")
    link = "" if problem.startswith(("is ", "can ", "can't ", "belongs ")) else "can't be used: "
    return CacheError(f"the cache folder {path} {link}{problem}", hints=tuple(hints))


def _require_way(folder: str) -> None:
    """Check that nobody else could exchange a folder by way of those that lead to it."""
    system = LocalSystem()
    facts = system.folder_facts(Path(folder))
    if facts.doubtful:
        raise unusable(folder, facts.obstacle, (how_to_vouch(system, facts.doubtful),))


_require_way_once = lru_cache(maxsize=64)(_require_way)
"""The same, once a process for each folder that it accepts: it costs a warm load a tenth of its time."""


def _look(folder: str) -> os.stat_result | None:
    """Check a folder that libraries may be loaded from, and return its stat; None if it does not exist."""
    try:
        link = status = repeatedly(lambda: os.lstat(folder))
        if stat.S_ISLNK(link.st_mode):
            status = repeatedly(lambda: os.stat(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unusable(folder, error.strerror or repr(error)) from error
    problem = distrust(status, os.geteuid(), link=link)
    if problem:
        raise unusable(folder, problem)
    return status


def _write_tag(path: str) -> None:
    """Mark the folder for backup programs: https://bford.info/cachedir/."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(_TAG)
