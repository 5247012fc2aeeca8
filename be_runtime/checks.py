"""Checked mode: the names of its checks, and whether it is on.

Pure, but for the variables that say which checks are on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, overload

from be_runtime.errors import ArgumentError

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


Axes = Sequence[int]
OnFinding = Literal["raise", "warn", "collect"]

CHECKS = {
    "guards": "writes outside of an array",
    "unwritten": "elements that are never written, and results that depend on memory outside of the arrays",
    "inputs": "writes to inputs",
    "values": "NaN and infinity in results",
    "bounds": "indices of `at` outside of an array, and wrong element types, in modules",
    "fault": "a fault of the GPU, named for the call that made it",
    "stream": "results that are written outside of the call's stream",
    "repeat": "results that differ from run to run, of a kernel that is not declared as `random`",
}
"""Each check and what it finds. The order gives the bits of `Checks.bits`."""

ATTRIBUTE = "be_check"
"""The attribute of a checked call, see `call_text`."""

_QUIET = 1 << 16
"""The bit that keeps a finding from being an error of the call."""


class Checks(NamedTuple):
    """The checks of a checked mode.

    Parameters
    ----------
    names : tuple of str
        Names of `CHECKS`, in its order.
    on_finding : {"raise", "warn", "collect"}
    """

    names: tuple[str, ...]
    on_finding: OnFinding = "raise"

    @property
    def bits(self) -> int:
        """The checks as a number, for the native library."""
        chosen = sum(1 << index for index, name in enumerate(CHECKS) if name in self.names)
        return chosen if self.on_finding == "raise" else chosen | _QUIET

    def without(self, name: str) -> Checks:
        """Return the same checks but one."""
        return self._replace(names=tuple(each for each in self.names if each != name))


def parse_checks(checks: bool | str | Sequence[str], on_finding: str = "raise") -> Checks:
    """Read the names of checks.

    Parameters
    ----------
    checks : bool, str or sequence of str
        True and "all" stand for all. A name with a minus leaves that check out of those before it, or of all.
    on_finding : str

    Raises
    ------
    ArgumentError
        There is no such check, or no such way to report.

    Examples
    --------
    >>> parse_checks("guards,inputs").names
    ('guards', 'inputs')
    >>> "values" in parse_checks("-values").names
    False
    """
    if on_finding not in ("raise", "warn", "collect"):
        raise ArgumentError(f"on_finding must be 'raise', 'warn' or 'collect', not {on_finding!r}")
    given: object = checks
    if not isinstance(given, str | Sequence | bool) or not all(isinstance(each, str) for each in _listed(given)):
        raise ArgumentError(f"checks must be a bool or names of checks, not {checks!r}", hints=_hints())
    names = _listed(checks)
    chosen: set[str] = set(CHECKS) if not names or names[0].startswith("-") else set()
    for name in names:
        bare = name.removeprefix("-")
        if bare != "all" and bare not in CHECKS:
            raise ArgumentError(f"there is no check {bare!r}", hints=_hints())
        meant = set(CHECKS) if bare == "all" else {bare}
        chosen = chosen - meant if name.startswith("-") else chosen | meant
    return Checks(tuple(name for name in CHECKS if name in chosen), on_finding)  # type: ignore[arg-type]


def _listed(checks: Any) -> list[str]:
    if isinstance(checks, bool):
        return ["all"]
    parts = checks.split(",") if isinstance(checks, str) else list(checks)
    return [part.strip() if isinstance(part, str) else part for part in parts if part != ""]


def _hints() -> tuple[str, ...]:
    return (f"the checks are {', '.join(CHECKS)}, or all; -name leaves one out",)


class Active(Protocol):
    """The part of a checked mode that calls use."""

    @property
    def checks(self) -> Checks:
        """The checks that are on."""

    def guard(self, targets: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Replace targets by ones that check each call."""

    def note(self, text: str) -> None:
        """Say what is not checked."""

    def note_call(self, kernel: str, caller: str) -> None:
        """Keep the line that calls a kernel."""

    def front(self, name: str, platform: str, make: Callable[[], object]) -> object:
        """Make a handler for ``jax.ffi.ffi_call`` that checks the calls of another one."""

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call, wait for its results where they are no tracers, and raise what was found."""


class State:
    """The checked mode of the whole process."""

    def __init__(self) -> None:
        self.everywhere: Active | None = None


STATE = State()
_HERE: ContextVar[Active | None] = ContextVar("the checked mode of this thread", default=None)


def active() -> Active | None:
    """Return the checked mode that is on in this thread, else in the process; None if there is none."""
    return _HERE.get() or STATE.everywhere


@contextlib.contextmanager
def using(mode: Active) -> Iterator[None]:
    """Check the calls that this thread traces meanwhile."""
    token = _HERE.set(mode)
    try:
        yield
    finally:
        _HERE.reset(token)


def call_text(
    label: str, caller: str, checks: Checks, *, once: bool, hidden: int, layouts: Sequence[Axes | None] = ()
) -> str:
    """Write what a checked call tells the native library, its attribute ``be_check``.

    Parameters
    ----------
    label : str
        Name of the kernel.
    caller : str
        The line that calls it.
    checks : Checks
    once : bool
        True for a kernel that does more than compute its results.
    hidden : int
        Number of the last results that are scratch memory.
    layouts : sequence
        For each argument and each result its axes from major to minor in memory, or None for their own order.
    """
    runs = 1 if once or not {"unwritten", "repeat"} & {*checks.names} else 2
    orders = " ".join("-" if axes is None else ",".join(map(str, axes)) for axes in layouts)
    names = (text.replace("\n", " ") for text in (label, caller))
    return "\n".join((*names, str(checks.bits), str(runs), str(hidden), orders))
