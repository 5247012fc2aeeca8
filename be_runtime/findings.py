"""Findings: faults of kernels, as checked mode and sanitizers see them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, overload

_ACCESS = re.compile(r": (?:(?P<array>(?:argument|result) \d+): )?(?P<place>\S+:\d+): (?:at|data_ptr)<")


class Finding(NamedTuple):
    """One thing that is wrong with a kernel.

    Parameters
    ----------
    kind : str
        A name of `be_runtime.checks.CHECKS`, or of what a tool found.
    kernel : str
        ``module.function``.
    message : str
        All of it in a sentence that names the kernel.
    array : str
        ``"argument 0"``, ``"result 0"`` or ``"scratch 0"``; empty where no array is meant.
    index : tuple of int
        The first element that it concerns.
    count : int
        Number of elements, or of bytes outside of an array.
    certain : bool
        False where a kernel with side effects ran once, so that a result may have its old bytes by chance.
    caller : str
        The line that calls the kernel, as ``train.py:33 in step``; empty where it is not known.
    source : str
        The kernel's own line, as ``k.cu:12``, where it is known.
    device : str
    tool : str
    hints : tuple of str
        What to do next.
    """

    kind: str
    kernel: str
    message: str
    array: str = ""
    index: tuple[int, ...] = ()  # type: ignore[assignment]  # a tuple's method has the name too
    count: int = 0  # type: ignore[assignment]
    certain: bool = True
    caller: str = ""
    source: str = ""
    device: str = ""
    tool: str = "guard"
    hints: tuple[str, ...] = ()

    def __str__(self) -> str:
        is_told = self.source in self.message
        places = ("" if is_told else f"kernel: {self.source}", f"called at {self.caller}" if self.caller else "")
        return "\n  ".join((self.message, *filter(None, places)))


def with_source(finding: Finding) -> Finding:
    """Return the error of a kernel with the kernel's line, if it is that of an access through a tensor.

    Examples
    --------
    >>> found = with_source(Finding("error", "k.f", "k.f: result 0: k.cc:6: at<float>(): index 0 is 4"))
    >>> found.array, found.source
    ('result 0', 'k.cc:6')
    """
    access = _ACCESS.search(finding.message) if finding.kind in ("bounds", "error") else None
    if access is None:
        return finding
    return finding._replace(kind="bounds", source=access["place"], array=finding.array or access["array"] or "")


class Findings(Sequence[Finding]):
    """Findings of a checked mode, in the order in which they were made.

    Parameters
    ----------
    fetch : callable
        Function that brings what was found since its last call: findings, and notes on what was not checked.

    Attributes
    ----------
    calls : dict of str to dict
        The kernels that were checked, and the lines that call each of them.
    """

    def __init__(self, fetch: Callable[[], object] = tuple) -> None:
        self._fetch = fetch
        self.calls: dict[str, dict[str, None]] = {}
        self._found: dict[Finding, None] = {}
        self._notes: dict[str, None] = {}

    def add(self, found: Sequence[Finding], notes: Sequence[str]) -> None:
        """Add findings and notes; the same again changes nothing."""
        self._found.update(dict.fromkeys(found))
        self._notes.update(dict.fromkeys(notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on calls that were not checked, and on results that differ from run to run."""
        self._fetch()
        return tuple(self._notes)

    @property
    def has_any(self) -> bool:
        """True if there is anything to report."""
        return bool(len(self) or self.notes)

    def __len__(self) -> int:
        self._fetch()
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Finding: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...

    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        self._fetch()
        return tuple(self._found)[index]

    def __repr__(self) -> str:
        return self.report()

    def report(self) -> str:
        """Write all findings and notes as a text."""
        self._fetch()
        blocks = ["\n".join((str(each), *(f"  hint: {hint}" for hint in each.hints))) for each in self._found]
        blocks.extend(f"note: {note}" for note in self._notes)
        return "\n\n".join(blocks) or "no findings"
