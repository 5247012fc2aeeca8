"""The display of long builds on the terminal, with a line for each running build."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from be_runtime.compile.plan import Edge
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.terminal import printable_line

if TYPE_CHECKING:
    from rich.console import Console


_DELAY_S = 1.0


class Progress:
    """A progress line that appears after a second, if standard error is a terminal.

    Parameters
    ----------
    name : str
        Name of the module that is built.
    edges : sequence of Edge
        Commands of the build.
    """

    def __init__(self, name: str, edges: Sequence[Edge]) -> None:
        self._name = name
        self._left = [edge.description for edge in edges]
        self._total = len(edges)
        self._slowest = ""
        self._display: _Display | None = None
        self.start = time.monotonic()

    def finish(self, edge: Edge) -> None:
        """Count a finished command."""
        if edge.description in self._left:
            self._left.remove(edge.description)

    def conclude(self, seconds: Mapping[str, float]) -> None:
        """Keep the slowest command for the last line, after all commands have finished."""
        if len(seconds) > 1:
            slowest = max(seconds, key=seconds.__getitem__)
            self._slowest = f", {slowest} took {seconds[slowest]:.1f} s of it"

    def __enter__(self) -> Self:
        self.start = time.monotonic()
        if sys.stderr is not None and sys.stderr.isatty():
            self._display = _Display.of(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._display is not None:
            took = time.monotonic() - self.start
            is_shown = kind is None and took > _DELAY_S
            self._display.remove(self, f"built {self._name} in {took:.1f} s{self._slowest}" if is_shown else "")

    @property
    def line(self) -> str:
        """Return the line of the display: the number of finished commands, and a running command."""
        finished, spent = self._total - len(self._left), time.monotonic() - self.start
        doing = f": {self._left[0]}" if self._left else ""
        return printable_line(f"building {self._name} [{finished}/{self._total}] {spent:.0f} s{doing}")


class _Display:
    """The lines of all running builds, since a terminal needs a single writer."""

    _newest: _Display | None = None
    _lock = ThreadLock()

    def __init__(self, first: Progress) -> None:
        self.builds = [first]
        self._endings: list[str] = []
        self._changed = threading.Event()
        self.thread = threading.Thread(target=self._show, daemon=True)

    @classmethod
    def of(cls, build: Progress) -> _Display:
        """Return the display that shows a build from now on; after a fork, the parent's display has no thread."""
        with cls._lock:
            newest = cls._newest
            if newest is not None and newest.builds and newest.thread.is_alive():
                newest.builds.append(build)
                return newest
            made = cls._newest = cls(build)
            made.thread.start()
            return made

    def remove(self, build: Progress, ending: str) -> None:
        """Remove a finished build; after the last build, stop the display."""
        with self._lock:
            self.builds.remove(build)
            self._endings += [ending] if ending else []
            is_last = not self.builds
        self._changed.set()
        if is_last:
            self.thread.join()

    def _show(self) -> None:
        while builds := list(self.builds):
            left = min(each.start for each in builds) + _DELAY_S - time.monotonic()
            if left <= 0:
                break
            self._wait(left)
        if not builds and not self._endings:
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        with console.status("") as status:
            while builds := list(self.builds):
                status.update(Text("\n".join(each.line for each in builds)))
                self._wait(0.2)
                self._print_endings(console)
        self._print_endings(console)

    def _print_endings(self, console: Console) -> None:
        while self._endings:
            console.print(printable_line(self._endings.pop(0)), style="dim", highlight=False, markup=False)

    def _wait(self, seconds: float) -> None:
        self._changed.wait(seconds)
        self._changed.clear()
