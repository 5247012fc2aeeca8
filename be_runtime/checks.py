"""Checked mode: the names of its checks, and whether it is on.

Pure, but for the variables that say which checks are on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol

from be_runtime.errors import ArgumentError

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
