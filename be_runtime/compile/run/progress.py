"""A progress line on the terminal for a long build."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from be_runtime.compile.plan.build_plan import Edge
from be_toolchain.terminal import printable_line

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
        self._failed = False
        self._slowest = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def finish(self, edge: Edge) -> None:
        """Note that a command has finished."""
        if edge.description in self._left:
            self._left.remove(edge.description)

    def conclude(self, seconds: Mapping[str, float]) -> None:
        """Note that all commands have finished, with their durations by description."""
        if len(seconds) > 1:
            slowest = max(seconds, key=seconds.__getitem__)
            self._slowest = f", {slowest} took {seconds[slowest]:.1f} s of it"

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True, args=(time.monotonic(),))
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._failed = kind is not None
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self, start: float) -> None:
        if self._done.wait(_DELAY_S):
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        with console.status(Text(self._line(start))) as status:
            while not self._done.wait(0.2):
                status.update(Text(self._line(start)))
        if not self._failed:
            took = f"built {self._name} in {time.monotonic() - start:.1f} s{self._slowest}"
            console.print(printable_line(took), style="dim", highlight=False, markup=False)

    def _line(self, start: float) -> str:
        finished = self._total - len(self._left)
        doing = f": {self._left[0]}" if self._left else ""
        return printable_line(
            f"building {self._name} [{finished}/{self._total}] {time.monotonic() - start:.0f} s{doing}"
        )
