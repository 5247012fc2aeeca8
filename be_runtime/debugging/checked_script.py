"""The process of a program that is checked: ``TOOL RECORD script|module NAME [ARGUMENT ...]``.

It runs the program as Python does, and leaves a record for the process that started it. Under the guard, checked mode
is on, and collects.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from be_runtime.checks import Finding, Findings, parse_checks
from be_runtime.debugging.sanitizers import SANITIZED
from be_runtime.errors import FindingError, shown_path
from be_runtime.load.checked_mode import Debugging
from be_runtime.load.process import PROCESS
from be_runtime.store.contents import LIBRARY

_STARTERS = (__file__, runpy.__file__, "<frozen runpy>")
_INNER = tuple(
    f"/{folder}/{package}/" for folder in ("site-packages", "dist-packages") for package in ("jax", "jaxlib")
)
"""Parts of the paths of files that are not the program's."""

_LARGEST_STACK = 1 << 30
"""Bytes of the stack where it has no limit: a recursion without end would take the machine's memory."""


class End(NamedTuple):
    """The end of a program.

    Parameters
    ----------
    code : int
        Exit code.
    error : str
        The error that ended it, in a line.
    place : str
        The last line of the program's own that the error came through.
    findings : tuple of Finding
        Those of the error, as of a process that the program started.
    """

    code: int
    error: str = ""
    place: str = ""
    findings: tuple[Finding, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Run a program, write its record, and return its exit code."""
    tool, record, kind, name, *arguments = argv
    process = os.getpid()
    _limit_stack()
    sys.argv = [name, *arguments]
    sys.path[0] = str(Path(name).resolve().parent) if kind == "script" else str(Path.cwd())
    with contextlib.ExitStack() as stack:
        if tool not in SANITIZED:  # whose own handlers say more
            faulthandler.enable(stack.enter_context(Path(f"{record}.dump").open("w", encoding="utf-8")))
        found = stack.enter_context(_checked(tool, Path(f"{record}.calls")))
        end = _run(lambda: _run_program(kind, name))
        _wait()
        outcome = {**end._asdict(), "targets": _targets(), "libraries": _libraries(), **_recorded(found, end)}
    if os.getpid() == process:  # a forked child may end here too
        Path(record).write_text(json.dumps(outcome), encoding="utf-8")
    return end.code


def _limit_stack() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_STACK, (_LARGEST_STACK, hard))


def _checked(tool: str, calls: Path) -> Debugging:
    """Turn checked mode on: sanitizers see more where a kernel's arrays are memory of their own.

    The variable that turns it on is for processes that the program starts.
    """
    PROCESS.settings()
    PROCESS.debug(None)
    checking = PROCESS.debug(parse_checks("all" if tool == "guard" else "guards", "collect"))
    checking.leave_breadcrumbs(calls)
    return checking


def _recorded(found: Findings, end: End) -> dict[str, object]:
    calls = {kernel: [*lines] for kernel, lines in found.calls.items()}
    return {"findings": [each._asdict() for each in (*found, *end.findings)], "notes": found.notes, "calls": calls}


def _run_program(kind: str, name: str) -> None:
    if kind == "module":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")


def _run(program: Callable[[], None]) -> End:
    """Run the program; print its error without frames of ours."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return End(end.code or 0)
        sys.stderr.write(f"{end.code}\n")
        return End(1, str(end.code))
    except BaseException as error:  # noqa: BLE001 - as Python does
        trace = error.__traceback__
        while trace is not None and _is_starter(trace):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
        own = [frame for frame in traceback.extract_tb(trace) if is_own(frame.filename)]
        place = f"{shown_path(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}" if own else ""
        findings = error.findings if isinstance(error, FindingError) else ()
        return End(1, _line(error), place, findings)
    return End(0)


def _line(error: BaseException) -> str:
    """Return an error as a line; what Python shows of a syntax error begins with its place instead."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[0]


def is_own(file: str) -> bool:
    """Return whether a file is one of the program, and not of JAX, of this package or of Python."""
    ours = file.startswith(f"{Path(__file__).parents[1]}/")
    return not ours and file not in _STARTERS and not any(part in file for part in _INNER)


def _is_starter(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename in _STARTERS


def _wait() -> None:
    """Wait for work that the program left to the devices."""
    jax = sys.modules.get("jax")
    if jax is not None:
        with contextlib.suppress(Exception):  # an error of the program, which it did not wait for
            jax.effects_barrier()


def _targets() -> dict[str, tuple[str, ...]]:
    """Return the names of the targets on each platform."""
    return {platform: PROCESS.registry.names(platform) for platform in ("cpu", "CUDA")}


def _libraries() -> list[str]:
    """Return the paths of the libraries of modules that this process has loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = {line.split(maxsplit=5)[-1] for line in maps}
    return sorted(path for path in mapped if path.endswith(f"/{LIBRARY}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
