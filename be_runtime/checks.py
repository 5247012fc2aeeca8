"""Checked mode, with its checks and findings, and the variables that turn it on for a thread or for the process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, get_args, overload

from be_runtime.errors import ArgumentError
from be_toolchain.named import NamedTuple

_ACCESS = r": (?:(?P<array>(?:argument|result) \d+): )?(?P<place>\S+:\d+): (?:at|data_ptr)<"


class Finding(NamedTuple):
    """A fault in a kernel, found by checked mode or by a sanitizer.

    Attributes
    ----------
    kind : str
        Name of the check of `debug`, such as ``"guards"``, or name of a sanitizer's finding.
    kernel : str
        Name of the kernel, ``module.function``.
    message : str
        Sentence that names the kernel and the fault.
    array : str
        Name of the array, such as ``"argument 0"``, ``"result 0"`` or ``"scratch 0"``; empty if the finding concerns no
        array.
    index : tuple of int
        Index of the first affected element.
    count : int
        Number of affected elements, or of affected bytes outside of an array.
    certain : bool
        False if the fault is only likely. For example, checked mode runs a kernel with side effects or state only once.
        If the kernel writes the bytes that an element already contained, the element looks unwritten.
    caller : str
        Line that calls the kernel, such as ``train.py:33 in step``; empty if the line is unknown.
    source : str
        Line of the kernel, such as ``k.cu:12``; empty if the line is unknown.
    device : str
        Device of the call, such as ``"cpu:0"``.
    tool : str
        Tool that reported the fault; ``"guard"`` for checked mode.
    hints : tuple of str
        Next steps, the most likely first.

    See Also
    --------
    - :doc:`/debugging`: the checks and their findings.
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
        kernel = [] if self.source in self.message else [f"kernel: {self.source}"]
        return "\n  ".join([self.message, *kernel, *([f"called at {self.caller}"] if self.caller else [])])


def with_source(finding: Finding) -> Finding:
    """Return a finding with the kernel's line, if its message is about an access through a tensor.

    Examples
    --------
    >>> found = with_source(Finding("error", "k.f", "k.f: result 0: k.cc:6: at<float>(): index 0 is 4"))
    >>> found.array, found.source
    ('result 0', 'k.cc:6')
    """
    access = re.search(_ACCESS, finding.message) if finding.kind in ("bounds", "error") else None
    if access is None:
        return finding
    return finding._replace(kind="bounds", source=access["place"], array=finding.array or access["array"] or "")


class Findings(Sequence[Finding]):
    """The findings of checked mode: a sequence of `Finding`, in the order of discovery.

    Attributes
    ----------
    calls : dict of str to dict
        Dictionary from the name of each checked kernel to an inner dictionary. The keys of the inner
        dictionary are the source lines that call the kernel, and the values are None.

    See Also
    --------
    - `debug`: turn checked mode on.
    - :doc:`/debugging`: the checks and their findings.
    """

    def __init__(self, fetch: Callable[[], object] = tuple) -> None:
        self._fetch = fetch
        self.calls: dict[str, dict[str, None]] = {}
        self._found: dict[Finding, None] = {}
        self._notes: dict[str, None] = {}

    def add(self, found: Sequence[Finding], notes: Sequence[str]) -> None:
        """Add findings and notes, except for those that are known."""
        self._found.update(dict.fromkeys(found))
        self._notes.update(dict.fromkeys(notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes, for example on calls that were not checked."""
        self._fetch()
        return tuple(self._notes)

    @property
    def has_any(self) -> bool:
        """True if there is a finding or a note."""
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
        """Return all findings and notes as text.

        Returns
        -------
        str
            One paragraph for each finding and note, or ``"no findings"``.
        """
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
"""Each check and its findings. The order gives the bits of `Checks.bits`."""

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
        """Return the checks without one of them."""
        return self._replace(names=tuple(each for each in self.names if each != name))


def parse_checks(checks: bool | str | Sequence[str], on_finding: str = "raise") -> Checks:
    """Return the checks that a user names.

    Parameters
    ----------
    checks : bool, str or sequence of str
        True and "all" stand for all checks. A name with a minus removes that check from the checks before it, or, as
        the first name, from all checks.
    on_finding : str

    Raises
    ------
    ArgumentError
        A check or `on_finding` is unknown.

    Examples
    --------
    >>> parse_checks("guards,inputs").names
    ('guards', 'inputs')
    >>> "values" in parse_checks("-values").names
    False
    """
    hints = (f"the checks are {', '.join(CHECKS)}, or all; -name leaves one out",)
    if on_finding not in get_args(OnFinding):
        raise ArgumentError(f"on_finding must be 'raise', 'warn' or 'collect', not {on_finding!r}")
    given: object = ["all"] if isinstance(checks, bool) else checks.split(",") if isinstance(checks, str) else checks
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise ArgumentError(f"checks must be a bool or names of checks, not {checks!r}", hints=hints)
    names = [each.strip() for each in given if each]
    chosen: set[str] = set(CHECKS) if not names or names[0].startswith("-") else set()
    for name in names:
        bare = name.removeprefix("-")
        if bare != "all" and bare not in CHECKS:
            raise ArgumentError(f"unknown check {bare!r}", hints=hints)
        meant = set(CHECKS) if bare == "all" else {bare}
        chosen = chosen - meant if name.startswith("-") else chosen | meant
    return Checks(tuple(name for name in CHECKS if name in chosen), on_finding)  # type: ignore[arg-type]


class CheckedMode(Protocol):
    """The part of a checked mode that calls use; `be_runtime.load.checked_mode` has the implementation."""

    @property
    def checks(self) -> Checks:
        """The checks that are on."""

    def guard(self, targets: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return targets that check each call and then run the given targets."""

    def note(self, text: str) -> None:
        """Add a note on a call that is not checked."""

    def note_call(self, kernel: str, caller: str) -> None:
        """Record the line that calls a kernel."""

    def front(self, name: str, platform: str, make: Callable[[], object]) -> object:
        """Return a handler for ``jax.ffi.ffi_call`` that checks the calls of another handler."""

    def run(self, call: Callable[[], Any]) -> Any:
        """Run a call, wait for its results unless they are tracers, and raise its findings."""


class State:
    """The checked mode of the whole process."""

    everywhere: CheckedMode | None = None


STATE = State()
_HERE: ContextVar[CheckedMode | None] = ContextVar("the checked mode of this thread", default=None)


def active() -> CheckedMode | None:
    """Return the active checked mode of this thread, else of the process; None without one."""
    return _HERE.get() or STATE.everywhere


@contextlib.contextmanager
def using(mode: CheckedMode) -> Iterator[None]:
    """Check the calls that this thread traces in the block."""
    token = _HERE.set(mode)
    try:
        yield
    finally:
        _HERE.reset(token)


def call_text(
    label: str, caller: str, checks: Checks, *, once: bool, hidden: int, layouts: Sequence[Axes | None] = ()
) -> str:
    """Return the attribute ``be_check`` of a checked call, a text for the native library.

    Parameters
    ----------
    label : str
        Name of the kernel.
    caller : str
        The line that calls it.
    checks : Checks
    once : bool
        True for a kernel with side effects, which must not run twice.
    hidden : int
        Number of results at the end that are scratch memory.
    layouts : sequence
        Axes of each argument and each result from major to minor in memory, or None for the usual order.
    """
    runs = 1 if once or not {"unwritten", "repeat"} & {*checks.names} else 2
    orders = " ".join("-" if axes is None else ",".join(map(str, axes)) for axes in layouts)
    names = (text.replace("\n", " ") for text in (label, caller))
    return "\n".join((*names, str(checks.bits), str(runs), str(hidden), orders))
