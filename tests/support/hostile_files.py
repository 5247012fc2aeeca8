"""Files that a reader must not wait for or take in: a pipe without a writer, and gigabytes of nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

KINDS = ("pipe", "gigabytes", "folder")


def plant(path: Path, kind: str) -> Path:
    """Put such a file in the place of another one."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(4 << 30)
    return path


@contextlib.contextmanager
def refused_at_once(seconds: float = 5.0, most_bytes: int = 256 << 20) -> Iterator[None]:
    """Fail where a block waits, or takes more memory than it may."""

    def stop(*_: object) -> None:
        raise AssertionError(f"it still waits after {seconds:g} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < most_bytes


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Make each write to a file fail, as on a full disk; Python ignores the limit's signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
