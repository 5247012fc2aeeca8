"""A program under all tools, one after the other: its children, and the findings of each."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.checks import Finding, with_source
from be_runtime.compile.execute import Ended, run_child
from be_runtime.debugging.checked_script import is_own
from be_runtime.debugging.sanitizers import (
    DEVICE_TOOLS,
    SANITIZED,
    SOUGHT,
    TOOLS,
    Child,
    Detectors,
    Invocation,
    Tool,
    ToolRun,
    distinct,
    entry_points,
    plan_child,
    read_device_report,
    read_host_report,
    read_race_report,
    read_valgrind_report,
    with_callers,
    with_names,
)
from be_runtime.errors import ArgumentError

_STATUS = re.compile(r"^[\w.]*Error: (?:[A-Z_]+: )?")
"""The name of an exception, and XLA's word for the kind of error."""

_PYTHON_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_READERS = {"asan": read_host_report, "tsan": read_race_report, "valgrind": read_valgrind_report}
_IN_TRACE = re.compile(r"\s+#\d+ 0x[0-9a-f]+ in ")
_TELLING: tuple[Tool, ...] = ("guard", "valgrind")
"""Tools whose findings, or some of them, are those of checked mode."""
_AROUND: tuple[Tool, ...] = ("tsan", "valgrind")
"""Tools that not every program and every machine can bear; what they do to a program is no fault of its."""
_FATAL = re.compile(r"(?:FATAL|ERROR): ThreadSanitizer.*|valgrind: .*")
_ASK_ASAN = ("if a C++ kernel did it, `check --tools asan` names its line",)
_VALGRIND_S = 600.0
"""Time for valgrind after the other tools, if the user names none: a program takes some 50 times as long in it."""
_SHOWN_LINES = 30
"""Lines of a program's output that are repeated where it failed under one tool alone."""


class Outcome(NamedTuple):
    """A checked program.

    Parameters
    ----------
    runs : tuple of ToolRun
    findings : tuple of Finding
        Everything that was found, in the order of the tools.
    error : str
        How the program failed by itself; empty if it did not.
    """

    runs: tuple[ToolRun, ...]
    findings: tuple[Finding, ...]
    error: str


def choose_tools(wanted: Sequence[str] | None, found: Detectors, *, has_gpu: bool) -> tuple[Tool, ...]:
    """Return the tools to run: those that are wanted, or all that can run here.

    Raises
    ------
    ArgumentError
        A tool that is wanted is unknown, or not here.
    """
    lacking = lacking_tools(found, has_gpu=has_gpu)
    if wanted is None:
        return tuple(tool for tool in TOOLS if tool not in lacking)
    for name in wanted:
        if name not in TOOLS:
            raise ArgumentError(f"there is no tool {name!r}", hints=(f"the tools are {', '.join(TOOLS)}",))
        if name in lacking:
            raise ArgumentError(f"{name} can't run here: {lacking[name]}")
    return tuple(tool for tool in TOOLS if tool in wanted)


def lacking_tools(found: Detectors, *, has_gpu: bool) -> dict[Tool, str]:
    """Return the tools that can't run here, and why."""
    lacking: dict[Tool, str] = {
        tool: f"the C++ compiler has no lib{tool}.so; install it" for tool in SANITIZED if tool not in found.preload
    }
    if not found.valgrind:
        lacking["valgrind"] = "there is no valgrind; install it"
    if not has_gpu:
        lacking |= dict.fromkeys(DEVICE_TOOLS, "there is no GPU")
    elif not found.compute_sanitizer:
        lacking |= dict.fromkeys(
            DEVICE_TOOLS, "there is no compute-sanitizer; `pip install nvidia-cuda-sanitizer-api` installs it"
        )
    return lacking


def check_program(
    program: Invocation,
    tools: Sequence[Tool],
    found: Detectors,
    *,
    lacking: Mapping[Tool, str],
    timeout_s: float | None,
    say: Callable[[str], None],
) -> Outcome:
    """Run a program under each tool and read what they found.

    Parameters
    ----------
    program : Invocation
    tools : sequence of Tool
    found : Detectors
    lacking : mapping of Tool to str
        Tools that would have run if they were here, and why they are not: the report says what nobody looked for.
    timeout_s : float, optional
        Time for each run, after which it is stopped.
    say : callable
        Function that tells people which tool begins.
    """
    runs: list[ToolRun] = []
    rewind = rewinder(0)
    error, targets, calls = "", dict[str, Sequence[str]](), dict[str, Sequence[str]]()
    with tempfile.TemporaryDirectory(prefix="be_check.") as folder:
        for tool in tools:
            if targets and not targets.get(_platform(tool)):
                continue  # the program has no kernels that the tool could see
            say(f"{tool}: {TOOLS[tool]}")
            rewind()
            child = plan_child(tool, program, found, folder)
            limit_s = _VALGRIND_S if timeout_s is None and runs and tool == "valgrind" else timeout_s
            ended = _run(child, is_first=not runs, timeout_s=limit_s)
            record = _read_record(child)
            targets, calls = targets or record.get("targets", {}), calls or record.get("calls", {})
            names = [name for names in targets.values() for name in names]
            run = _tool_run(child, ended, record, names, is_first=not runs)
            failed = "" if run.findings else _own_error(ended, record, limit_s)
            if failed and runs and not error and tool in _AROUND:
                why = next(filter(None, (_FATAL.search(_text(log)) for log in _logs(child))), None)
                note = _unsought(tool, f"under it, {failed if why is None else why[0]}")
                run, failed = run._replace(notes=(*run.notes, note)), ""
            runs.append(run)
            error = error or failed
    missing = [
        ToolRun(tool, "missing", notes=(_unsought(tool, why),))
        for tool, why in lacking.items()
        if targets.get(_platform(tool))
    ]
    findings = distinct(finding for run in runs for finding in run.findings)
    if any(run.tool == "asan" for run in runs):
        findings = tuple(each._replace(hints=()) if each.hints == _ASK_ASAN else each for each in findings)
    # An error after a fault mostly follows from it.
    return Outcome((*runs, *missing), with_callers(findings, calls), "" if findings else error)


def _platform(tool: Tool) -> str:
    """Return the platform whose kernels a tool sees."""
    return "CUDA" if tool in DEVICE_TOOLS else "cpu"


def _unsought(tool: Tool, why: str) -> str:
    return f"nobody looked for {SOUGHT[tool]}: {why}"


def rewinder(descriptor: int) -> Callable[[], object]:
    """Return a function that lets each run read standard input from here on; one of a pipe can't, and does nothing."""
    try:
        begin = os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return lambda: None
    return lambda: os.lseek(descriptor, begin, os.SEEK_SET)


def _run(child: Child, *, is_first: bool, timeout_s: float | None) -> Ended:
    """Run a child; people see the output of the first one, and the end of that of one that fails.

    UndefinedBehaviorSanitizer writes into the output of asan, which is shown later for its sake.
    """
    if is_first and child.tool != "asan":
        sys.stderr.flush()
        return run_child(child.argv, child.variables, output=sys.stderr, timeout_s=timeout_s)
    output = Path(f"{child.log}.output")
    with output.open("w", encoding="utf-8") as file:
        ended = run_child(child.argv, child.variables, output=file, timeout_s=timeout_s)
    if is_first or ended.code != 0:
        lines = [line for line in output.read_text("utf-8", "replace").splitlines() if not _IN_TRACE.match(line)]
        sys.stderr.write("".join(f"{line}\n" for line in (lines if is_first else lines[-_SHOWN_LINES:])))
    return ended


def _read_record(child: Child) -> dict[str, Any]:
    """Read what the program's process left; empty if it died."""
    try:
        record: dict[str, Any] = json.loads(_text(Path(child.record)) or "{}")
    except ValueError:
        return {}
    return record


def _tool_run(child: Child, ended: Ended, record: dict[str, Any], names: Iterable[str], *, is_first: bool) -> ToolRun:
    """Read what a tool found; an error that a kernel returns is the same under each."""
    reports = list(map(_text, _logs(child)))
    found: list[Finding] = []
    if child.tool in _READERS:
        found = [finding for text in reports for finding in _READERS[child.tool](text)]
    elif child.tool != "guard":
        libraries = [Path(path).read_bytes() for path in record.get("libraries", [])]
        called = {re.sub(r"\W", "_", name) for name in record.get("calls", {})}
        found = [
            _of_its_library(finding, libraries, called)
            for text in reports
            for finding in read_device_report(text, child.tool)
        ]
    if child.tool in _TELLING:
        recorded = [Finding(**_tuples(each))._replace(tool=child.tool) for each in record.get("findings", [])]
        found = [*recorded, *found]
    running = _running_calls(child)
    is_dead = ended.code is not None and ended.code < 0 and child.tool not in _AROUND
    if not found and is_dead and (running or not record):
        found = [_death(ended.code or 0, child, running)]
    elif is_first and not found:
        found = _refusals(record, child.tool)
    named = with_names((with_source(_in_kernel(each, running)) for each in found), [*names, *running])
    outcome = "stopped" if ended.code is None else "ran" if record else "failed"
    callers = {kernel: [caller] for kernel, (caller, _what) in running.items()}
    return ToolRun(child.tool, outcome, ended.seconds, with_callers(named, callers), tuple(record.get("notes", ())))


def _of_its_library(finding: Finding, libraries: Sequence[bytes], called: set[str]) -> Finding:
    """Name the kernel for a device function: the one of its library that was called, if there is one alone."""
    symbols = [symbol for symbol in entry_points(finding.kernel, libraries) if symbol in called]
    if len(symbols) != 1:
        return finding
    return finding._replace(kernel=symbols[0], message=symbols[0] + finding.message.removeprefix(finding.kernel))


def _logs(child: Child) -> list[Path]:
    log = Path(child.log)
    return sorted(log.parent.glob(f"{log.name}.*" if child.tool in SANITIZED else f"{log.name}.[0-9]*"))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as they were before JSON made lists of tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _death(code: int, child: Child, running: Mapping[str, tuple[str, str]]) -> Finding:
    """Return the end of a process by a signal as a finding, with the line of the program that Python was at."""
    frames = _PYTHON_FRAME.findall(_text(Path(f"{child.record}.dump")))
    at = next((f"{file}:{line} in {name}" for file, line, name in frames if is_own(file)), "")
    caller, did = next(iter(running.values()), ("", ""))
    return Finding(
        kind="crash",
        kernel="",
        message=f"the process ended by {_signal_name(-code)} in native code{f': it {did}' if did else ''}",
        caller=caller or at,
        tool=child.tool,
        hints=_ASK_ASAN,
    )


def _signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _running_calls(child: Child) -> dict[str, tuple[str, str]]:
    """Return the kernels that ran when the process died, with their callers and what a fault has shown.

    See ``native/guard/breadcrumbs.h``.
    """
    crumbs = (crumb.split("\n") for crumb in re.split("\0+", _text(Path(f"{child.record}.calls"))) if "\n" in crumb)
    return {kernel: (caller, "".join(did)) for kernel, caller, *did in crumbs}


def _in_kernel(finding: Finding, running: Iterable[str]) -> Finding:
    """Name the first of the kernels that ran where a finding names none."""
    kernel = next(iter(running), "")
    if finding.kernel or not kernel:
        return finding
    return finding._replace(kernel=kernel, message=f"{kernel}: {finding.message}")


def _text(path: Path) -> str:
    """Read a file with paths relative to the working folder; empty if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace(f"{Path.cwd()}/", "")
    except OSError:
        return ""


def _refusals(record: dict[str, Any], tool: str) -> list[Finding]:
    """Return the error that ended the program as a finding, if it is one of a kernel: it begins with its name."""
    names = [name for names in record.get("targets", {}).values() for name in names]
    message = _STATUS.sub("", record.get("error", ""))
    kernel = next((name for name in names if message.startswith(f"{name}: ")), "")
    if not kernel:
        return []
    return [Finding("error", kernel, message, caller=record["place"], tool=tool)]


def _own_error(ended: Ended, record: dict[str, Any], timeout_s: float | None) -> str:
    """Say how the program failed; empty if it did not."""
    if ended.code is None:
        return f"the program was stopped after {timeout_s:g} s; raise --timeout"
    if ended.code < 0 and record:
        return f"the process ended by {_signal_name(-ended.code)} when the program was over and no kernel ran"
    if ended.code == 0:
        return "" if record else "the program ended without Python's own end, as by os._exit, so what was found is lost"
    error = record.get("error", "")
    return f"the program failed: {error}" if error else f"the program ended with exit code {ended.code}"
