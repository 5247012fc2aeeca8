"""Locks that allow one build of a key at a time, and that the operating system releases.

A `flock` on an open file ends with its process, however the process ends, so no lock is ever stale, and a lock file
that remains means nothing. Compilers do not inherit the lock, since descriptors close on exec, and forked children
close it. Some code forks without Python's knowledge, so the file is unlocked before it is closed, and a waiting process
checks for the entry too. `flock` is called directly. A library that falls back to the existence of lock files would
make stale locks possible, and its import would take longer than a look-up in the cache.

On some network file systems, `flock` is missing, local to each node, or fails. Two builds may then run at the same
time, and both publish by a rename, so only time is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from be_runtime.errors import CacheError
from be_runtime.store.folder import PASSING, cache_errors
from be_toolchain.machine.forks import no_fork

Flock = Callable[[int, int], None]
OnWait = Callable[[float, str], object]
"""Function of the seconds waited so far and the name of the lock's holder."""

THIS_PROCESS = "another thread of this process"
"""Name of the holder of a lock if another thread of this process holds it."""

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_HELD = frozenset({errno.EAGAIN, errno.EACCES})
_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
_REPORTS_S = (1.0, 10.0, 60.0)

_ours: set[int] = set()
"""Descriptors of the lock files that this process has open."""


def _close_in_child() -> None:
    """Close the descriptors that a forked child inherits, since they would hold the lock until the child ends."""
    while _ours:
        os.close(_ours.pop())


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def key_lock(
    path: str,
    *,
    timeout_s: float | None = None,
    on_wait: OnWait | None = None,
    holder: Callable[[], str] = lambda: "another process",
    is_needless: Callable[[], bool] = lambda: False,
    flock: Flock = fcntl.flock,
) -> Iterator[None]:
    """Hold the lock on `path` during the block, unless the file system has no locks.

    Parameters
    ----------
    path : str
        The lock file, which is made if it is missing.
    timeout_s : float, optional
        Longest wait; None waits until the holder ends.
    on_wait : callable, optional
        Called after 1, 10 and 60 seconds of waiting, and every minute from then on.
    holder : callable
        Returns the name of the lock's holder, for messages.
    is_needless : callable
        Called during the wait. Once it returns true, the block runs without the lock.
    flock : callable
        The locking primitive.

    Raises
    ------
    CacheError
        `timeout_s` passed, or the lock file can't be made.
    """
    with cache_errors(path):
        try:
            descriptor = _acquire(path, flock, _Patience(path, timeout_s, on_wait, holder), is_needless)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            descriptor = None
    try:
        yield
    finally:
        if descriptor in _ours:
            try:
                flock(descriptor, fcntl.LOCK_UN)
            finally:
                _close(descriptor)


def remove_if_free(path: str) -> None:
    """Delete a lock file that no process holds; a process that waits for the lock makes a new file."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(descriptor)


class _Patience:
    """A wait for a lock: its duration, reports and time limit."""

    def __init__(self, path: str, timeout_s: float | None, on_wait: OnWait | None, holder: Callable[[], str]) -> None:
        self._path, self._timeout_s, self._on_wait, self._holder = path, timeout_s, on_wait, holder
        self._began = time.monotonic()
        self._report_at = next_report(0.0)
        self._poll_s = _FIRST_POLL_S

    def pause(self) -> None:
        """Sleep a short time, and raise an error once the time limit has passed."""
        waited = time.monotonic() - self._began
        if self._timeout_s is not None and waited >= self._timeout_s:
            raise CacheError(
                f"waited {waited:.1f} s for {self._holder()} to finish the same build",
                hints=("wait longer: BE_LOCK_TIMEOUT_S", f"or end that process; the lock is {self._path}"),
            )
        if self._on_wait is not None and waited >= self._report_at:
            self._report_at = next_report(waited)
            self._on_wait(waited, self._holder())
        time.sleep(self._poll_s)
        self._poll_s = min(self._poll_s * 2, _LONGEST_POLL_S)


def next_report(waited_s: float) -> float:
    """Return the seconds of waiting at which a wait is reported next.

    Examples
    --------
    >>> [next_report(waited) for waited in (0.0, 1.01, 10.01, 60.01, 125.0)]
    [1.0, 10.0, 60.0, 120.0, 180.0]
    """
    every = _REPORTS_S[-1]
    return next((at for at in _REPORTS_S if at > waited_s), (waited_s // every + 1) * every)


def _acquire(path: str, flock: Flock, patience: _Patience, is_needless: Callable[[], bool]) -> int | None:
    """Return the locked descriptor; None if locks are unsupported or needless."""
    while True:
        descriptor = _open(path)
        try:
            locked = _try_lock(descriptor, flock)
            if locked and os.fstat(descriptor).st_nlink > 0:
                return descriptor
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)
        if locked is None or (not locked and is_needless()):
            return None
        if not locked:
            patience.pause()


def _open(path: str) -> int:
    """Open the lock file, and make its folder if needed, since another process may clear the cache at any time."""
    while True:
        try:
            with no_fork:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                _ours.add(descriptor)
                return descriptor
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(path), 0o700)


def _close(descriptor: int) -> None:
    """Close a lock file, unless `_close_in_child` has closed it after a fork."""
    with no_fork:
        if descriptor in _ours:
            _ours.remove(descriptor)
            os.close(descriptor)


def _try_lock(descriptor: int, flock: Flock) -> bool | None:
    """Try to take the lock, and return whether this process has it; None if locks are not supported."""
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        if error.errno in _HELD:
            return False
        raise
    return True
