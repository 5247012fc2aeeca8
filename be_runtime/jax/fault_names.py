"""Names of kernels for reports of ``faulthandler`` when a process dies in a kernel; see ``native/fault_names.h``.

A kernel's name has the lines of Python that called it. Lines are added while Python calls the kernel, and cost nothing
while a program runs.
"""

from __future__ import annotations

import ctypes
from typing import Any

from be_toolchain.machine.forks import ThreadLock

_MOST_LINES = 8
"""The largest number of reported lines of a kernel."""


class FaultNames:
    """The names of this process for the code of kernels."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, None]] = {}
        self._codes: dict[str, dict[int, Any]] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._native: Any = None
        self._lock = ThreadLock()

    def add_code(self, label: str, code: int, library: ctypes.CDLL) -> None:
        """Name code that is on the stack while a kernel runs, by a function of the library."""
        with self._lock:
            self._native = self._native or library.be_name_kernel
            self._codes.setdefault(label, {})[code] = getattr(library, "be_running_kernel", None)
            self._set_name(label)

    def add_line(self, label: str) -> None:
        """Add the author's line that calls a kernel now."""
        from be_runtime.jax import calls, internals

        frame = internals.user_frame()
        if frame is None or (here := (label, frame.f_code.co_filename, frame.f_lineno)) in self._seen:
            return
        with self._lock:
            self._seen.add(here)
            lines = self._lines.setdefault(label, {})
            if len(lines) <= _MOST_LINES:
                lines[calls.caller() if len(lines) < _MOST_LINES else "another line"] = None
                self._set_name(label)

    def _set_name(self, label: str) -> None:
        lines = self._lines.get(label, ())
        text = f"{label}, called at {' or '.join(lines)}" if lines else label
        for code, running in self._codes.get(label, {}).items():
            self._native(ctypes.c_void_p(code), text.encode(), running)


NAMES = FaultNames()
