"""Locks for a process that forks while other threads work, as data loaders do.

A forked child has one thread and a copy of everything else. In the child, a lock that another thread held stays locked.
A module that the thread was importing is never complete. A pipe that it had opened stays open until the child ends, so
that the pipe's reader waits.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

no_fork = threading.RLock()
"""The lock to hold, for milliseconds, while a descriptor is open that a child must not inherit: a fork waits for it."""

_OURS = ("be_runtime", "be_toolchain")
_LONGEST_WAIT_S = 5.0
"""The limit, in seconds, of the wait for an import, which may itself wait for the forking thread."""

_locks: weakref.WeakSet[ThreadLock] = weakref.WeakSet()


class ThreadLock:
    """A re-entrant lock for threads. In a forked child it is free, unless the forking thread held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def forget_other_threads(self) -> None:
        """Replace the lock if its holder is a thread that this process does not have."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def made_once(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep results as `functools.lru_cache` does; one thread makes each result, so that all threads get one object.

    Examples
    --------
    >>> new = made_once(2)(lambda name: [name])
    >>> new("a") is new("a"), new("a") is new("b")
    (True, False)
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        lock, kept = ThreadLock(), functools.lru_cache(most)(make)

        def call(*args: P.args, **keywords: P.kwargs) -> T:
            with lock:
                return kept(*args, **keywords)  # type: ignore[arg-type]  # lru_cache asks for hashable ones

        return call

    return decorate


def _before_fork() -> None:
    """Wait until no other thread imports a module for our packages, and hold `no_fork`."""
    give_up = time.monotonic() + _LONGEST_WAIT_S
    no_fork.acquire()
    this = threading.get_ident()
    while time.monotonic() < give_up:
        frames = sys._current_frames()  # noqa: SLF001 - documented, the underscore is a warning
        if not any(_imports_for_us(frame) for thread, frame in frames.items() if thread != this):
            break
        no_fork.release()
        time.sleep(0.001)
        no_fork.acquire()


def _imports_for_us(frame: FrameType | None) -> bool:
    """Return whether a thread imports a module for one of our packages."""
    importing = False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            importing = True
        elif importing and str(frame.f_globals.get("__name__")).startswith(_OURS):
            return True
        frame = frame.f_back
    return False


def _begin_child() -> None:
    """Free the locks that threads of the parent hold."""
    no_fork.release()
    for lock in tuple(_locks):
        lock.forget_other_threads()


os.register_at_fork(before=_before_fork, after_in_parent=no_fork.release, after_in_child=_begin_child)
