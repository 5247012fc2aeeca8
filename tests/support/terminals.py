"""A terminal of a test's own, which a reader empties while others write, whatever the terminal of the tests can do."""

from __future__ import annotations

import contextlib
import os
import pty
import threading
import time
from typing import Self, TextIO


class Terminal:
    """A terminal; when its context ends, `text` is all that was written.

    Attributes
    ----------
    handle : int
        The end that programs write to.
    """

    def __init__(self) -> None:
        self._reader, self.handle = pty.openpty()
        self._read = bytearray()
        self._thread = threading.Thread(target=self._empty, daemon=True)

    def __enter__(self) -> Self:
        self._usual = os.environ.get("TERM")
        os.environ["TERM"] = "xterm-256color"
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.pop("TERM")
        if self._usual is not None:
            os.environ["TERM"] = self._usual
        os.close(self.handle)
        self._thread.join(60)
        assert not self._thread.is_alive(), "a process still holds the terminal"
        os.close(self._reader)

    def file(self) -> TextIO:
        """Open a file that writes to it."""
        return open(os.dup(self.handle), "w", encoding="utf-8", errors="surrogateescape")

    def await_text(self, text: str, seconds: float = 60) -> None:
        """Wait until it shows a text."""
        until = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < until, f"it does not show {text!r} but {self.text!r}"
            time.sleep(0.01)

    @property
    def text(self) -> str:
        """What was written so far."""
        return self._read.decode("utf-8", "surrogateescape")

    def _empty(self) -> None:
        with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed.
            while chunk := os.read(self._reader, 1 << 16):
                self._read += chunk
