"""Limits in time for what has none of its own, such as the look-up of a name or a socket that gets single bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_S = 1.0
"""Longest time until an answer begins, or until a server takes what is sent to it."""

LARGEST = 1 << 30
"""Most bytes of an answer."""


class Watch:
    """The part of a bounded function that whoever waits for it can see."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._socket: socket.socket | None = None
        self._is_left = False

    def hold(self, connection: socket.socket) -> None:
        """Note a socket that is shut down when nobody waits any more.

        Raises
        ------
        TimeoutError
            Nobody does.
        """
        self._socket = connection
        if self._is_left:
            raise TimeoutError

    def leave(self) -> None:
        """Wait no more."""
        self._is_left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of a TLS socket changes it as well


def run_bounded(function: Callable[[Watch], T], first_s: float, whole_s: float) -> T:
    """Call a function in a thread of its own, and leave it when it takes too long.

    Parameters
    ----------
    function : callable
        Sets `Watch.has_begun` when the other side answers.
    first_s, whole_s : float
        Longest time until then, and for everything.

    Raises
    ------
    TimeoutError
        It took too long.
    Exception
        Whatever the function raises.
    """
    watch = Watch()
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function(watch))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            errors.append(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        finally:
            watch.has_begun.set()

    thread = threading.Thread(target=run, name="be-bounded", daemon=True)
    until = time.monotonic() + whole_s
    try:
        thread.start()
        if not watch.has_begun.wait(min(first_s, whole_s)):
            raise TimeoutError(f"no answer within {min(first_s, whole_s):g} s")
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            raise TimeoutError(f"not done within {whole_s:g} s")
    finally:
        watch.leave()
    if errors:
        raise errors[0]
    return results[0]
