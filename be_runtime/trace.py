"""The timeline of loads in Chrome's trace format for Perfetto and chrome://tracing; ``BE_TRACE`` names its file.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from operator import itemgetter
from pathlib import Path
from typing import Any

from be_runtime.errors import warn_caller

_EVENTS: ContextVar[list[dict[str, Any]] | None] = ContextVar("events of the load that is traced", default=None)
_NOTHING: contextlib.nullcontext[dict[str, Any]] = contextlib.nullcontext({})
_LANES = 2**30  # Linux has no thread with such a number
_EPOCH_NS = time.time_ns() - time.perf_counter_ns()
_WARNED: set[Path] = set()


class _Span:
    """A phase, whose context yields its arguments, to which the block may add."""

    def __init__(self, name: str, args: dict[str, Any]) -> None:
        self._name, self._args, self._began_ns = name, args, 0

    def __enter__(self) -> dict[str, Any]:
        self._began_ns = time.perf_counter_ns()
        return self._args

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._args["error"] = kind.__name__
        note(self._name, self._began_ns, time.perf_counter_ns(), **self._args)


def span(name: str, /, **args: Any) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Record the time of a block, or do nothing outside of `loading`."""
    return _NOTHING if _EVENTS.get() is None else _Span(name, args)


def note(name: str, began_ns: int, ended_ns: int, /, **args: Any) -> None:
    """Record a phase that has ended, by times of `time.perf_counter_ns`, or do nothing outside of `loading`."""
    _add(name, "load", began_ns, ended_ns, threading.get_native_id(), args)


def command(name: str, argv: Sequence[str], began_ns: int, ended_ns: int) -> None:
    """Record a command of a build; parallel commands get separate lanes at the load's end."""
    _add(name, "command", began_ns, ended_ns, 0, {"argv": list(argv)})


@contextlib.contextmanager
def loading(path: Path | None, name: str) -> Iterator[None]:
    """Collect the phases of one load, and add them to a file at its end, or do nothing for None."""
    if path is None or _EVENTS.get() is not None:
        yield
        return
    events: list[dict[str, Any]] = []
    token = _EVENTS.set(events)
    try:
        with span(f"load {name}"):
            yield
    finally:
        _EVENTS.reset(token)
        try:
            _merge(path.resolve(), [*_give_lanes(events), *events])
        except (OSError, ValueError, RuntimeError) as error:
            if path not in _WARNED:
                _WARNED.add(path)
                warn_caller(f"BE_TRACE: the timeline of loads can't be written to {path}: {error}", RuntimeWarning)


def read_document(text: str | bytes) -> dict[str, Any]:
    """Read a file's text. In ``traceEvents``, each load's own event comes after the events of its phases.

    Raises
    ------
    ValueError, RecursionError
        The text is not a trace.
    """
    import json

    document: dict[str, Any] = json.loads(text)
    match document:
        case {"traceEvents": list()}:
            return document
        case _:
            raise ValueError("it is a file of another kind")


def _add(name: str, cat: str, began_ns: int, ended_ns: int, tid: int, args: dict[str, Any]) -> None:
    if (events := _EVENTS.get()) is not None:
        # Whole microseconds keep the order of times, so an inner phase never ends after its outer phase.
        began, ended = (_EPOCH_NS + began_ns) // 1000, (_EPOCH_NS + ended_ns) // 1000
        times = {"ts": began, "dur": ended - began}
        events.append({"name": name, "cat": cat, "ph": "X", **times, "pid": os.getpid(), "tid": tid, "args": args})


def _give_lanes(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each command the first lane that is free at its start, and return the names of the lanes.

    There are as many lanes as commands that ran in parallel. The loads of one thread share its lanes.
    """
    first, free_at = _LANES + 256 * threading.get_native_id(), list[int]()
    for event in sorted((event for event in events if event["cat"] == "command"), key=itemgetter("ts")):
        lane = next((lane for lane, free in enumerate(free_at) if free <= event["ts"]), len(free_at))
        free_at[lane : lane + 1] = [event["ts"] + event["dur"]]
        event["tid"] = first + lane
    common = {"name": "thread_name", "cat": "__metadata", "ph": "M", "pid": os.getpid()}
    return [common | {"tid": first + lane, "args": {"name": f"commands {lane + 1}"}} for lane in range(len(free_at))]


def _merge(path: Path, events: list[dict[str, Any]]) -> None:
    """Replace the file by one with more events, while other processes that do the same wait."""
    import fcntl
    import json
    import stat

    while True:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held = os.fstat(file.fileno())
            if not stat.S_ISREG(held.st_mode):
                raise ValueError("it is not a regular file")
            try:
                if not os.path.samestat(held, path.stat()):
                    continue  # another process has replaced it meanwhile
            except FileNotFoundError:
                continue
            file.seek(0)
            document = read_document(file.read() or '{"traceEvents": []}')
            document["traceEvents"] += events
            new = Path(f"{path}.{os.getpid()}.{threading.get_native_id()}")
            try:
                new.write_text(json.dumps(document), encoding="utf-8")
                new.chmod(stat.S_IMODE(held.st_mode))
                new.replace(path)
            finally:
                new.unlink(missing_ok=True)
            return
