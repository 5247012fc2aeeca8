"""The one way to read a file that somebody else may have put there: nothing blocks, and everything has a limit."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SMALL, LARGE = 1 << 16, 1 << 26
"""Most bytes of a file that a person writes by hand, and of a source, a record or a list."""

LARGEST = 1 << 31
"""Most bytes of a file of code."""

_LEAST_PIECE = 1 << 14

Judge = Callable[[os.stat_result, int], str]
"""Function of a file's status and the user's id that returns the reason for distrust, such as `distrust_entry`."""


class NotRegularError(OSError):
    """A path leads to a pipe, a socket or a device."""


def open_regular(
    path: str | Path, most_bytes: int = LARGEST, *, judge: Judge | None = None, follows_link: bool = True
) -> BufferedReader:
    """Open a regular file, judged by what was opened, so that nobody can exchange it in between.

    Parameters
    ----------
    path : str or Path
    most_bytes : int
        The largest size that is accepted.
    judge : callable, optional
        The owner and the mode are judged by it before anything is read.
    follows_link : bool
        False where no person has a reason to make a symbolic link.

    Raises
    ------
    OSError
        It can't be opened, or is not such a file; `strerror` says why, after "can't be read: ".
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # the open of a pipe would wait for its writer
    try:
        descriptor = os.open(path, flags if follows_link else flags | os.O_NOFOLLOW)
    except ValueError as error:  # of a NUL, or of a text that is no name of a file
        raise OSError(errno.EINVAL, f"it is not a path: {error}", str(path)) from None
    try:
        _require(os.fstat(descriptor), str(path), most_bytes, judge)
        return open(descriptor, "rb")  # noqa: PTH123 - by descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(
    path: str | Path, most_bytes: int = LARGEST, *, judge: Judge | None = None, follows_link: bool = True
) -> bytes:
    """Read a regular file; see `open_regular`. One that grows meanwhile is refused too."""
    with open_regular(path, most_bytes, judge=judge, follows_link=follows_link) as file:
        data = read_beginning(file, most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def read_part(file: Traversable, most_bytes: int) -> bytes:
    """Read a file of a package, which may be a part of a zip; see `read_regular`."""
    if isinstance(file, Path):
        return read_regular(file, most_bytes)
    with file.open("rb") as opened:
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(file.name, most_bytes)
    return data


def read_beginning(file: BinaryIO, most_bytes: int) -> bytes:
    """Read the first bytes of an open file, in pieces: the kernel clears as much as a read of /proc/sys asks for."""
    size, parts = os.fstat(file.fileno()).st_size, []
    while most_bytes > 0 and (part := file.read(min(most_bytes, max(size + 1, _LEAST_PIECE)))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def _require(status: os.stat_result, path: str, most_bytes: int, judge: Judge | None) -> None:
    if judge is not None and (problem := judge(status, os.geteuid())):
        raise PermissionError(errno.EPERM, f"it {problem}", path)  # a missing right to read is EACCES
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(errno.EINVAL, "it is not a regular file", path)
    if status.st_size > most_bytes:
        raise _too_large(path, most_bytes)


def _too_large(path: str | Path, most_bytes: int) -> OSError:
    size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
    return OSError(errno.EFBIG, f"it is larger than {size}", str(path))


def file_sha256(path: Path) -> str | None:
    """Hash a source; None if it is missing or no file, such as a pipe. One that is too large to be one has no hash."""
    try:
        with open_regular(path, LARGE) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return "" if error.errno == errno.EFBIG else None
