"""Checked mode: targets whose handlers check each call of another target, and their findings.

The handlers are slots of ``native/guard.cc``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from be_runtime import checks, errors, frames
from be_runtime.call.compiled_function import check_calls
from be_runtime.jax import calls, port, transforms
from be_runtime.load import module, obtain
from be_runtime.load.native_library import native_library
from be_runtime.load.registry import Registry, Session, Target
from be_toolchain.machine.forks import ThreadLock

_NATIVE = "guard"
_LDFLAGS = ("-ldl",)
_PREFIX = "be.checked."
_LATEST = 1000
"""Number of findings to keep for `FindingError`, since an error of XLA has only their text."""

_ROOM = 1 << 20
"""Size of the buffer for findings, in bytes."""

Targets = tuple[tuple[str, str], ...]


class CheckedTargets:
    """The checked targets of a process, and the findings of their calls.

    Parameters
    ----------
    session : callable
        Function that makes the session in which the native library is compiled.
    registry : Registry
    """

    def __init__(self, session: Callable[[], Session], registry: Registry) -> None:
        self.breadcrumbs = ""
        self._session = session
        self._registry = registry
        self._libraries: list[ctypes.CDLL] = []
        self._known: dict[tuple[str, str], str] = {}
        self._listeners: list[checks.Findings] = []
        self._everywhere: list[Debugging] = []
        self._latest: deque[checks.Finding] = deque(maxlen=_LATEST)
        self._has_permanent = False
        self._lock = ThreadLock()
        atexit.register(self._report_at_exit)

    def target(self, platform: str, name: str) -> str:
        """Return the checking target of a target; the target itself if it can't be checked."""
        with self._lock:
            if (platform, name) not in self._known:
                self._known[platform, name] = self._make(platform, name)
            return self._known[platform, name]

    def _make(self, platform: str, name: str) -> str:
        where = {"cuda": "CUDA"}.get(platform, platform)
        stages = self._registry.stages(name, where)
        if not {"execute"} <= set(stages) <= {"execute", "instantiate"}:
            return name
        handler = self._front(stages, is_gpu=where == "CUDA", usual=None)
        target = Target(_PREFIX + name, where, "checked")
        self._registry.add([target], {target.name: lambda: handler})
        return target.name

    def front(self, name: str, platform: str, handler: object, chosen: checks.Checks) -> object:
        """Return a checking handler of a handler, which runs once for each call, since it may have side effects."""
        text = checks.call_text(name, "", chosen, once=True, hidden=0)
        with self._lock:
            return self._front(port.addresses(handler), is_gpu=platform == "CUDA", usual=text.encode())

    def _front(self, stages: dict[str, int], *, is_gpu: bool, usual: bytes | None) -> object:
        """Take a slot of the last library; load a copy of the library if it has no free slot."""
        made = (ctypes.c_void_p * 2)()
        for library in (*self._libraries[-1:], None):
            execute, instantiate = (ctypes.c_void_p(stages.get(stage)) for stage in ("execute", "instantiate"))
            if (library or self._open()).be_guard_slot(execute, instantiate, ctypes.c_int32(is_gpu), usual, made):
                break
        found = dict(zip(("execute", "instantiate"), made, strict=True))
        return port.stage_capsules({stage: found[stage] for stage in stages})

    def _open(self) -> ctypes.CDLL:
        session = self._session()
        library = native_library(_NATIVE, session, _LDFLAGS)
        if self._libraries:
            library = _load_copy(library)
        is_sanitized = bool(session.settings.sanitize)  # the sanitizer reports faults itself
        library.be_guard_exact(ctypes.c_int32(is_sanitized))
        if not is_sanitized:
            library.be_guard_name_faults()
        if self.breadcrumbs and not self._libraries:
            library.be_guard_breadcrumbs(self.breadcrumbs.encode())
        library.be_guard_take.restype = ctypes.c_int64
        self._libraries.append(library)
        return library

    def always(self, chosen: checks.Checks) -> Mode:
        """Return a mode that stays on until the process ends."""
        self._has_permanent = True
        check_calls(is_on=True)
        return Mode(chosen, self)

    def start(self, chosen: checks.Checks | None) -> Debugging:
        """Check all calls of the process until the result is entered as a context; None ends all such modes."""
        with self._lock:
            if chosen is None:
                for each in reversed(self._everywhere):
                    each.end()
            made = Debugging(self, None if chosen is None else Mode(chosen, self))
            self.set_modes([*self._everywhere, made])
        return made

    def _report_at_exit(self) -> None:
        """Write the findings of the process's modes to standard error when the process ends."""
        for each in self._everywhere:
            if each.mode is not None and each.mode.checks.on_finding != "collect" and each.findings.has_any:
                obtain.say(f"checked mode, in this process:\n{each.findings.report()}")

    def set_modes(self, everywhere: Sequence[Debugging]) -> None:
        """Set the modes of the process; the last active mode wins."""
        self._everywhere = [each for each in everywhere if each.mode is not None]
        checks.STATE.everywhere = self._everywhere[-1].mode if self._everywhere else None

    def remove_mode(self, debugging: Debugging) -> None:
        """Remove a mode from the modes of the process."""
        with self._lock:
            self.set_modes([each for each in self._everywhere if each is not debugging])

    def listen(self, findings: checks.Findings) -> None:
        """Add all further findings to `findings` too."""
        with self._lock:
            self.fetch()
            self._listeners.append(findings)
            check_calls(is_on=True)

    def leave(self, findings: checks.Findings) -> None:
        """Stop adding findings to `findings`."""
        with self._lock:
            self.fetch()
            self._listeners = [each for each in self._listeners if each is not findings]
            check_calls(is_on=self._has_permanent or bool(self._listeners))

    def findings_in(self, error: Exception) -> tuple[checks.Finding, ...]:
        """Return the findings in the text of an error of XLA, each once."""
        text = str(error)
        if "BE801 " not in text:
            return ()
        self.fetch()
        with self._lock:
            named = [each for each in self._latest if each.message in text and each.caller in text]
        return tuple(dict.fromkeys(named))

    def note(self, text: str) -> None:
        """Add a note on a call that is not checked to all listeners."""
        for listener in self._listeners:
            listener.add((), (text,))

    def note_call(self, kernel: str, caller: str) -> None:
        """Record the line that calls a kernel in all listeners."""
        for listener in self._listeners:
            listener.calls.setdefault(kernel, {})[caller] = None

    def fetch(self) -> list[checks.Finding]:
        """Return the findings since the last fetch, and add them to all listeners."""
        with self._lock:
            lines = [line for library in self._libraries for line in _take(library)]
            found, notes = read_findings(lines)
            self._latest.extend(found)
            for listener in self._listeners:
                listener.add(found, notes)
        return found


def _take(library: ctypes.CDLL) -> list[str]:
    lines: list[str] = []
    room = ctypes.create_string_buffer(_ROOM)
    while size := library.be_guard_take(room, ctypes.c_int64(_ROOM)):
        lines.extend(room.raw[: size - 1].decode(errors="replace").split("\n"))  # a message may contain other line ends
    return lines


def read_findings(lines: Sequence[str]) -> tuple[list[checks.Finding], list[str]]:
    """Read findings and notes from lines of JSON."""
    found, notes = [], []
    for fields in map(json.loads, lines):
        if fields["kind"] == "note":
            notes.append(fields["message"])
        else:
            fields["index"], fields["hints"] = tuple(fields["index"]), tuple(fields["hints"])
            found.append(checks.with_source(checks.Finding(**fields)))
    return found, notes


def _load_copy(library: ctypes.CDLL) -> ctypes.CDLL:
    """Load a copy of a library with variables of its own, since the loader identifies a file by its inode."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "guard.so")
        shutil.copyfile(library._name, copy)  # noqa: SLF001  # ctypes has no other way to the path
        return module.open_library(copy)


class Mode(NamedTuple):
    """An active checked mode, see `be_runtime.checks.CheckedMode`."""

    checks: checks.Checks
    guards: CheckedTargets

    def guard(self, targets: Targets) -> Targets:
        """Return the checking targets, or the given targets if one of them can't be checked."""
        made = tuple((platform, self.guards.target(platform, name)) for platform, name in targets)
        return targets if set(made) & set(targets) else made

    def note(self, text: str) -> None:
        """See `CheckedMode.note`."""
        self.guards.note(text)

    def note_call(self, kernel: str, caller: str) -> None:
        """See `CheckedMode.note_call`."""
        self.guards.note_call(kernel, caller)

    def front(self, name: str, platform: str, make: Callable[[], object]) -> object:
        """See `CheckedMode.front`."""
        return self.guards.front(name, platform, make(), self.checks)

    def run(self, call: Callable[[], Any]) -> Any:
        """See `CheckedMode.run`."""
        with self.raising():
            results = call()
            port.wait(results)
        self.report()
        return results

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raise `FindingError` in place of an error of XLA that names findings."""
        try:
            yield
        except port.runtime_errors() as error:
            found = self.guards.findings_in(error)
            if not found:
                raise
            hints = dict.fromkeys(hint for each in found for hint in each.hints)
            raise errors.FindingError("\n".join(map(str, found)), findings=found, hints=tuple(hints)) from None

    def report(self) -> None:
        """Warn of the findings that raised no error."""
        for each in self.guards.fetch():
            if self.checks.on_finding == "warn" or not (each.certain or self.checks.on_finding == "collect"):
                errors.warn_caller(
                    "\n".join((str(each), *(f"hint: {hint}" for hint in each.hints))), errors.FindingWarning
                )


class Debugging:
    """A checked mode: of the process until `end`, or, as a context manager, of this thread within the block.

    Parameters
    ----------
    guards : CheckedTargets
    mode : Mode or None
        None checks nothing.
    """

    def __init__(self, guards: CheckedTargets, mode: Mode | None) -> None:
        self.findings = checks.Findings(guards.fetch)
        self.mode = mode
        self._guards = guards
        self._stack = contextlib.ExitStack()
        if mode is not None:
            guards.listen(self.findings)
            self._stack.callback(guards.leave, self.findings)
            self._stack.callback(mode.report)
            self._stack.enter_context(calls.traced_anew(mode.checks))

    def __repr__(self) -> str:
        names = () if self.mode is None else self.mode.checks.names
        return f"<be_runtime.debug: {', '.join(names) or 'no checks'}>"

    def leave_breadcrumbs(self, path: Path) -> None:
        """Write the running checked calls to a file, which has them even if the process dies."""
        self._guards.breadcrumbs = str(path)

    def __enter__(self) -> checks.Findings:
        if self.mode is not None:
            self._guards.remove_mode(self)
            self._stack.enter_context(checks.using(self.mode))
            self._stack.enter_context(self.mode.raising())
        return self.findings

    @frames.public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def end(self) -> None:
        """Stop checking, and drop JAX's programs, since other threads may have traced checked calls."""
        self._guards.remove_mode(self)
        self._stack.close()
        if self.mode is not None:
            transforms.forget_programs()
