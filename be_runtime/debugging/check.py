"""The command ``check``: run a program under one tool after the other, and collect the findings of all tools."""

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

from be_runtime import checks, errors
from be_runtime.compile.execute import Ended, run_child
from be_runtime.debugging import checked_script, sanitizers

_STATUS = re.compile(r"^[\w.]*Error: (?:[A-Z_]+: )?")
"""The name of an exception, and XLA's name of the kind of error."""

_PYTHON_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_READERS = {
    "asan": sanitizers.read_host_report,
    "tsan": sanitizers.read_race_report,
    "valgrind": sanitizers.read_valgrind_report,
}
_IN_TRACE = re.compile(r"\s+#\d+ 0x[0-9a-f]+ in ")
_CHECKED: tuple[sanitizers.Tool, ...] = ("guard", "valgrind")
"""Tools whose runs report the findings of checked mode."""
_FRAGILE: tuple[sanitizers.Tool, ...] = ("tsan", "valgrind")
"""Tools that may fail themselves, with some programs or on some machines."""
_FATAL = re.compile(r"(?:FATAL|ERROR): ThreadSanitizer.*|valgrind: .*")
_ASK_ASAN = ("if a C++ kernel did it, `check --tools asan` names its line",)
_VALGRIND_S = 600.0
"""Seconds for valgrind after other tools, unless the user sets a limit: a program takes some 50 times longer."""
_SHOWN_LINES = 30
"""The number of printed lines of the output of a program that failed under one tool only."""


class Outcome(NamedTuple):
    """A checked program.

    Parameters
    ----------
    runs : tuple of ToolRun
    findings : tuple of Finding
        The findings of all tools, in the order of the tools.
    error : str
        The failure of the program itself; empty if it did not fail.
    """

    runs: tuple[sanitizers.ToolRun, ...]
    findings: tuple[checks.Finding, ...]
    error: str


def choose_tools(
    wanted: Sequence[str] | None, found: sanitizers.Detectors, *, has_gpu: bool
) -> tuple[sanitizers.Tool, ...]:
    """Return the wanted tools, or all tools that can run here.

    Raises
    ------
    ArgumentError
        A wanted tool is unknown, or can't run here.
    """
    lacking = lacking_tools(found, has_gpu=has_gpu)
    if wanted is None:
        return tuple(tool for tool in sanitizers.TOOLS if tool not in lacking)
    for name in wanted:
        if name not in sanitizers.TOOLS:
            raise errors.ArgumentError(
                f"unknown tool {name!r}", hints=(f"the tools are {', '.join(sanitizers.TOOLS)}",)
            )
        if name in lacking:
            raise errors.ArgumentError(f"{name} can't run here: {lacking[name]}")
    return tuple(tool for tool in sanitizers.TOOLS if tool in wanted)


def lacking_tools(found: sanitizers.Detectors, *, has_gpu: bool) -> dict[sanitizers.Tool, str]:
    """Return the tools that can't run here, each with the reason."""
    lacking: dict[sanitizers.Tool, str] = {
        tool: f"the C++ compiler has no lib{tool}.so; install it"
        for tool in sanitizers.SANITIZED
        if tool not in found.preload
    }
    if not found.valgrind:
        lacking["valgrind"] = "valgrind is not installed"
    if not has_gpu:
        lacking |= dict.fromkeys(sanitizers.DEVICE_TOOLS, "there is no GPU")
    elif not found.compute_sanitizer:
        lacking |= dict.fromkeys(
            sanitizers.DEVICE_TOOLS,
            "compute-sanitizer is not installed; `pip install nvidia-cuda-sanitizer-api` installs it",
        )
    return lacking


def check_program(
    program: sanitizers.Invocation,
    tools: Sequence[sanitizers.Tool],
    found: sanitizers.Detectors,
    *,
    lacking: Mapping[sanitizers.Tool, str],
    timeout_s: float | None,
    say: Callable[[str], None],
) -> Outcome:
    """Run a program under each tool, and collect the findings.

    Parameters
    ----------
    program : Invocation
    tools : sequence of Tool
    found : Detectors
    lacking : mapping of Tool to str
        Tools that can't run here, with the reasons: the report lists the faults that were not checked.
    timeout_s : float, optional
        Time after which a run is stopped.
    say : callable
        Function that prints the name of the tool that begins.
    """
    runs: list[sanitizers.ToolRun] = []
    begin = offset_of(0)
    error, targets, calls = "", dict[str, Sequence[str]](), dict[str, Sequence[str]]()
    with tempfile.TemporaryDirectory(prefix="be_check.") as folder:
        for tool in tools:
            if targets and not targets.get(_platform(tool)):
                continue  # the program has no kernels that the tool can check
            say(f"{tool}: {sanitizers.TOOLS[tool]}")
            if begin is not None:
                os.lseek(0, begin, os.SEEK_SET)
            child = sanitizers.plan_child(tool, program, found, folder)
            limit_s = _VALGRIND_S if timeout_s is None and runs and tool == "valgrind" else timeout_s
            ended = _run(child, is_first=not runs, timeout_s=limit_s)
            record = _read_record(child)
            targets, calls = targets or record.get("targets", {}), calls or record.get("calls", {})
            names = [name for names in targets.values() for name in names]
            run = _tool_run(child, ended, record, names, is_first=not runs)
            failed = "" if run.findings else _own_error(ended, record, limit_s)
            if failed and runs and not error and tool in _FRAGILE:
                why = next(filter(None, (_FATAL.search(_text(log)) for log in _logs(child))), None)
                note = _missed_note(tool, f"with it, {failed if why is None else why[0]}")
                run, failed = run._replace(notes=(*run.notes, note)), ""
            runs.append(run)
            error = error or failed
    missing = [
        sanitizers.ToolRun(tool, "missing", notes=(_missed_note(tool, why),))
        for tool, why in lacking.items()
        if targets.get(_platform(tool))
    ]
    findings = sanitizers.distinct(finding for run in runs for finding in run.findings)
    if any(run.tool == "asan" for run in runs):
        findings = tuple(each._replace(hints=()) if each.hints == _ASK_ASAN else each for each in findings)
    # An error after a fault mostly follows from it.
    return Outcome((*runs, *missing), sanitizers.with_callers(findings, calls), "" if findings else error)


def _platform(tool: sanitizers.Tool) -> str:
    """Return the platform whose kernels a tool checks."""
    return "CUDA" if tool in sanitizers.DEVICE_TOOLS else "cpu"


def _missed_note(tool: sanitizers.Tool, why: str) -> str:
    return f"not checked: {sanitizers.FAULTS[tool]}: {why}"


def offset_of(descriptor: int) -> int | None:
    """Return the position in a file, from which each run reads its standard input; None for a pipe."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None


def _run(child: sanitizers.Child, *, is_first: bool, timeout_s: float | None) -> Ended:
    """Run a child; print the output of the first child, and the last lines of a later child that fails.

    Under asan, UndefinedBehaviorSanitizer writes into the output, which is therefore printed later without the traces.
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


def _read_record(child: sanitizers.Child) -> dict[str, Any]:
    """Return the record of the program's process; empty if the process died."""
    try:
        record: dict[str, Any] = json.loads(_text(Path(child.record)) or "{}")
    except ValueError:
        return {}
    return record


def _tool_run(
    child: sanitizers.Child, ended: Ended, record: dict[str, Any], names: Iterable[str], *, is_first: bool
) -> sanitizers.ToolRun:
    """Read the findings of a tool; only the first tool reports a kernel's own error, which is equal under all tools."""
    found = _reported(child, record)
    if child.tool in _CHECKED:
        recorded = [checks.Finding(**_tuples(each))._replace(tool=child.tool) for each in record.get("findings", [])]
        found = [*recorded, *found]
    running = _running_calls(child)
    is_dead = ended.code is not None and ended.code < 0 and child.tool not in _FRAGILE
    if not found and is_dead and (running or not record):
        found = [_death(ended.code or 0, child, running)]
    elif is_first and not found:
        found = _refusals(record, child.tool)
    named = sanitizers.with_names((checks.with_source(_in_kernel(each, running)) for each in found), [*names, *running])
    outcome = "stopped" if ended.code is None else "ran" if record else "failed"
    callers = {kernel: [caller] for kernel, (caller, _what) in running.items()}
    return sanitizers.ToolRun(
        child.tool, outcome, ended.seconds, sanitizers.with_callers(named, callers), tuple(record.get("notes", ()))
    )


def _reported(child: sanitizers.Child, record: Mapping[str, Any]) -> list[checks.Finding]:
    """Return the findings in a tool's own reports; a device function of only one called kernel names the kernel."""
    reports = list(map(_text, _logs(child)))
    if child.tool == "guard":
        return []
    if child.tool in _READERS:
        return [finding for text in reports for finding in _READERS[child.tool](text)]
    libraries = [Path(path).read_bytes() for path in record.get("libraries", [])]
    called = {re.sub(r"\W", "_", name) for name in record.get("calls", {})}
    found = []
    for finding in (finding for text in reports for finding in sanitizers.read_device_report(text, child.tool)):
        symbols = [symbol for symbol in sanitizers.entry_points(finding.kernel, libraries) if symbol in called]
        kernel = symbols[0] if len(symbols) == 1 else finding.kernel
        message = kernel + finding.message.removeprefix(finding.kernel)
        found.append(finding._replace(kernel=kernel, message=message))
    return found


def _logs(child: sanitizers.Child) -> list[Path]:
    log = Path(child.log)
    return sorted(log.parent.glob(f"{log.name}.*" if child.tool in sanitizers.SANITIZED else f"{log.name}.[0-9]*"))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with tuples in place of JSON's lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _death(code: int, child: sanitizers.Child, running: Mapping[str, tuple[str, str]]) -> checks.Finding:
    """Return the end of a process by a signal as a finding, with the last line of the program."""
    frames = _PYTHON_FRAME.findall(_text(Path(f"{child.record}.dump")))
    at = next((f"{file}:{line} in {name}" for file, line, name in frames if checked_script.is_own(file)), "")
    caller, did = next(iter(running.values()), ("", ""))
    return checks.Finding(
        kind="crash",
        kernel="",
        message=f"the process ended by {_signal_name(-code)} in native code{f': it {did}' if did else ''}",
        caller=caller or at,
        tool=child.tool,
        hints=_ASK_ASAN,
    )


def _signal_name(number: int) -> str:
    """Return the name of a signal, or the number of a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _running_calls(child: sanitizers.Child) -> dict[str, tuple[str, str]]:
    """Return the kernels that ran when the process died, with the line of the call and the text of a fault.

    See ``native/guard/breadcrumbs.h``.
    """
    crumbs = (crumb.split("\n") for crumb in re.split("\0+", _text(Path(f"{child.record}.calls"))) if "\n" in crumb)
    return {kernel: (caller, "".join(did)) for kernel, caller, *did in crumbs}


def _in_kernel(finding: checks.Finding, running: Iterable[str]) -> checks.Finding:
    """Add the first running kernel to a finding without a kernel."""
    kernel = next(iter(running), "")
    if finding.kernel or not kernel:
        return finding
    return finding._replace(kernel=kernel, message=f"{kernel}: {finding.message}")


def _text(path: Path) -> str:
    """Return a file's text with paths relative to the working folder; empty if the file can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace(f"{Path.cwd()}/", "")
    except OSError:
        return ""


def _refusals(record: dict[str, Any], tool: str) -> list[checks.Finding]:
    """Return the error that ended the program as a finding, if its text begins with a kernel's name."""
    names = [name for names in record.get("targets", {}).values() for name in names]
    message = _STATUS.sub("", record.get("error", ""))
    kernel = next((name for name in names if message.startswith(f"{name}: ")), "")
    if not kernel:
        return []
    return [checks.Finding("error", kernel, message, caller=record["place"], tool=tool)]


def _own_error(ended: Ended, record: dict[str, Any], timeout_s: float | None) -> str:
    """Return the failure of the program; empty if it did not fail."""
    if ended.code is None:
        return f"the program was stopped after {timeout_s:g} s; raise --timeout"
    if ended.code < 0 and record:
        return f"the process ended by {_signal_name(-ended.code)} when the program was over and no kernel ran"
    if ended.code == 0:
        return "" if record else "the program ended by os._exit or the like, so its findings are lost"
    error = record.get("error", "")
    return f"the program failed: {error}" if error else f"the program ended with exit code {ended.code}"


def render(runs: Sequence[sanitizers.ToolRun], findings: Sequence[checks.Finding]) -> str:
    """Return the report as text: the findings of each kernel with their lines, notes, and the tools that ran."""
    kernels = dict.fromkeys(each.kernel for each in findings)
    blocks = [
        _kernel_block(number, kernel, [each for each in findings if each.kernel == kernel])
        for number, kernel in enumerate(kernels, start=1)
    ]
    blocks += [f"note ({run.tool}): {note}" for run in runs for note in run.notes]
    ran = ", ".join(f"{run.tool} {run.seconds:.1f} s" for run in runs if run.outcome != "missing") or "no tool ran"
    count = f"faults in {len(kernels)} kernel{'s' * (len(kernels) != 1)}" if findings else "nothing found"
    return "\n".join([*blocks, f"{count} ({ran})"])


def _kernel_block(number: int, kernel: str, findings: Sequence[checks.Finding]) -> str:
    callers = dict.fromkeys(each.caller for each in findings if each.caller)
    lines = [f"{number}. {kernel or 'native code'}" + (f", called at {'; '.join(callers)}" if callers else "")]
    for each in findings:
        told = each.message.removeprefix(each.kernel).removeprefix(":").strip()
        place = f"{each.source}: " if each.source and each.source not in told else ""
        lines.append(f"   {each.tool}: {place}{told}{'' if each.certain else ' (maybe)'}")
    lines += dict.fromkeys(f"   hint: {hint}" for each in findings for hint in each.hints)
    return "\n".join(lines)


def as_json(runs: Sequence[sanitizers.ToolRun], findings: Sequence[checks.Finding]) -> dict[str, object]:
    """Return the report as JSON data."""
    return {
        "findings": [each._asdict() for each in findings],
        "tools": [
            {"tool": run.tool, "outcome": run.outcome, "seconds": round(run.seconds, 2), "notes": list(run.notes)}
            for run in runs
        ],
    }
