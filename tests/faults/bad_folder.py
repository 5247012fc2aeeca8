"""A folder that misbehaves as network file systems do: `python -m tests.faults.bad_folder BACKING MOUNT FILE`.

What is in BACKING is seen at MOUNT, by FUSE. Two mounts of one folder are two machines. FILE has the `Rules` as JSON;
it is read again when it changes.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Rules(NamedTuple):
    """What a mount does wrong.

    Parameters
    ----------
    late_s : float
        Time for which names and stats are believed, as with NFS's acregmin and acdirmin: what another mount does is
        seen that much later. Read at the start alone.
    flock : str
        "works" between mounts; "local": each mount has its own locks; else the name of the error. Read at the start
        alone.
    fails : dict of str to [str, float]
        Error and rate, by operation: it is not done.
    lost : dict of str to float
        Rate, by operation: it is done, and fails with EIO as if the reply were lost.
    short_write : float
        Rate of writes of which only half is done.
    space : int, optional
        Bytes that can be written before the disk is full.
    clock_s : float
        Seconds by which the server's clock is ahead.
    only : str
        Part of the paths that faults come for.
    seed : int
        Seed of the rates' dice.
    """

    late_s: float = 0.0
    flock: str = "works"
    fails: Mapping[str, tuple[str, float]] = {}
    lost: Mapping[str, float] = {}
    short_write: float = 0.0
    space: int | None = None
    clock_s: float = 0.0
    only: str = ""
    seed: int = 0


def _error(name: str) -> OSError:
    code = getattr(errno, name)
    return OSError(code, os.strerror(code))


def faulty(do: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operation of a folder fail as the rules say."""
    name = do.__name__

    @functools.wraps(do)
    def done(self: BadFolder, path: str, *args: Any) -> Any:
        rules = self.rules()
        is_meant = rules.only in (path or "")
        code, rate = rules.fails.get(name, ("", 0.0))
        if is_meant and self.happens(rate):
            raise _error(code)
        result = do(self, path, *args)
        if name in _CHANGES:
            for changed in (path, *args[:1]):
                self.listed.pop(os.path.dirname(str(changed)), None)
        if is_meant and self.happens(rules.lost.get(name, 0.0)):
            raise _error("EIO")
        return result

    return done


_CHANGES = frozenset({"mkdir", "rmdir", "unlink", "rename", "create"})


def _of_a_path(do: Callable[..., Any]) -> Callable[..., Any]:
    """The operation that is a function of `os`, on the path below the backing folder."""

    @functools.wraps(do)
    def below(self: BadFolder, path: str, *args: Any) -> Any:
        return do(self.backing + path, *args)

    return faulty(below)


_OF_A_PATH: tuple[Callable[..., Any], ...] = (os.mkdir, os.rmdir, os.unlink, os.chmod)


class BadFolder:
    """The operations of a cache that libfuse asks for, each on the same path below the backing folder."""

    use_ns = True

    def __init__(self, backing: str, rules_file: str) -> None:
        self.backing, self._file = backing, rules_file
        self.listed: dict[str, tuple[float, list[tuple[str, dict[str, int], int]]]] = {}
        self._seen, self._rules, self._lock = -1, Rules(), threading.Lock()
        self._written, self._dice = 0, random.Random()  # noqa: S311 - faults, no secrets
        self.first = self.rules()
        if self.first.flock != "local":  # without the operation, the kernel locks for this mount alone
            self.flock = self._flock

    def rules(self) -> Rules:
        with self._lock:
            changed = os.stat(self._file).st_mtime_ns
            if changed != self._seen:
                with open(self._file, encoding="utf-8") as file:
                    self._rules = Rules(**json.load(file))
                self._seen, self._written = changed, 0
                self._dice.seed(self._rules.seed)
            return self._rules

    def happens(self, rate: float) -> bool:
        with self._lock:
            return rate > 0 and self._dice.random() < rate

    def _at(self, path: str) -> str:
        return self.backing + path

    @faulty
    def getattr(self, path: str, handle: Any = None) -> dict[str, int]:
        status = os.lstat(self._at(path)) if handle is None else os.fstat(handle.fh)
        ahead_ns = int(self.rules().clock_s * 1e9)
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino", "st_blocks")
        times = {f"st_{kind}": getattr(status, f"st_{kind}_ns") + ahead_ns for kind in ("atime", "mtime", "ctime")}
        return {name: getattr(status, name) for name in names} | times

    @faulty
    def readdir(self, path: str, _handle: Any) -> list[tuple[str, dict[str, int], int]]:
        until, rows = self.listed.get(path, (0.0, []))
        if until < time.monotonic():
            with os.scandir(self._at(path)) as items:
                numbers = {".": 1, "..": 1} | {item.name: item.inode() for item in items}
            rows = [(name, {"st_ino": number}, 0) for name, number in numbers.items()]
            self.listed[path] = time.monotonic() + self.first.late_s, rows
        return rows

    mkdir, rmdir, unlink, chmod = map(_of_a_path, _OF_A_PATH)

    @faulty
    def rename(self, old: str, new: str) -> None:
        os.rename(self._at(old), self._at(new))

    @faulty
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        ahead_ns = int(self.rules().clock_s * 1e9)
        ours = [when - ahead_ns for when in times or [time.time_ns() + ahead_ns] * 2]
        os.utime(self._at(path), ns=(ours[0], ours[1]), follow_symlinks=False)

    @faulty
    def open(self, path: str, handle: Any) -> None:
        handle.fh = os.open(self._at(path), handle.flags & ~os.O_APPEND)  # the kernel says where to write

    @faulty
    def create(self, path: str, mode: int, handle: Any) -> None:
        handle.fh = os.open(self._at(path), (handle.flags & ~os.O_APPEND) | os.O_CREAT, mode)

    @faulty
    def read(self, _path: str, size: int, offset: int, handle: Any) -> bytes:
        return os.pread(handle.fh, size, offset)

    @faulty
    def write(self, path: str, data: bytes, offset: int, handle: Any) -> int:
        rules = self.rules()
        if rules.space is not None and self._written + len(data) > rules.space:
            raise _error("ENOSPC")
        # What a program has mapped is written by the kernel, which takes half a page for a whole one.
        is_meant = rules.only in path and len(data) > 1 and not handle.writepage
        if is_meant and self.happens(rules.short_write):
            data = data[: len(data) // 2]
        self._written += len(data)
        return os.pwrite(handle.fh, data, offset)

    @faulty
    def truncate(self, path: str, size: int, handle: Any = None) -> None:
        os.truncate(self._at(path) if handle is None else handle.fh, size)

    @faulty
    def fsync(self, _path: str, _is_data: int, handle: Any) -> None:
        os.fsync(handle.fh)

    @faulty
    def release(self, _path: str, handle: Any) -> None:
        os.close(handle.fh)

    def statfs(self, _path: str) -> dict[str, int]:
        found = os.statvfs(self.backing)
        return {name: value for name in dir(found) if name.startswith("f_") and (value := getattr(found, name)) >= 0}

    def _flock(self, _path: str, handle: Any, operation: int) -> None:
        if self.first.flock != "works":
            raise _error(self.first.flock)
        fcntl.flock(handle.fh, operation)


def main(backing: str, mount: str, rules_file: str) -> None:
    """Serve until the folder is unmounted."""
    from mfusepy import FUSE

    folder = BadFolder(backing, rules_file)
    late = {f"{kind}_timeout": folder.first.late_s for kind in ("entry", "negative", "attr")}
    os.umask(0)
    FUSE(folder, mount, raw_fi=True, foreground=True, use_ino=True, fsname="bad_folder", **late)


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:]))
