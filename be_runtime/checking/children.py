"""The processes in which a program is checked, as commands and variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Tool = Literal["guard", "asan", "memcheck", "racecheck", "initcheck"]

TOOLS: dict[Tool, str] = {
    "guard": "checked mode of be_runtime",
    "asan": "AddressSanitizer and UndefinedBehaviorSanitizer, for C++ modules",
    "memcheck": "compute-sanitizer: accesses outside of an allocation, or misaligned",
    "racecheck": "compute-sanitizer: races in shared memory",
    "initcheck": "compute-sanitizer: reads of memory that was never written",
}
"""Each tool that a program may run under, in this order."""

DEVICE_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck")

_PADDING = 4096
"""Bytes after each allocation that belong to none: else an access beyond the end may hit the next one."""


class Invocation(NamedTuple):
    """A Python program and its arguments.

    Parameters
    ----------
    script : str
        Path of a script; or the name of a module, if `is_module` is true.
    arguments : tuple of str
    is_module : bool
    """

    script: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False


class Detectors(NamedTuple):
    """The parts of sanitizers on this machine.

    Parameters
    ----------
    python : str
        The interpreter.
    preload : tuple of str
        Libraries that a process under AddressSanitizer begins with; empty if there are none.
    compute_sanitizer : str
        Path of the program; empty if there is none.
    """

    python: str
    preload: tuple[str, ...] = ()
    compute_sanitizer: str = ""


class Child(NamedTuple):
    """One process to run.

    Parameters
    ----------
    tool : Tool
    argv : tuple of str
    variables : dict of str to str
        Variables beside those of this process. ``BE_DEBUG`` is for processes that the program starts: a finding is an
        error there.
    record : str
        File that the program's process writes at its end: `be_runtime.checking.checked_script`.
    log : str
        Beginning of the names of the tool's own reports.
    """

    tool: Tool
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    record: str
    log: str


def plan_child(tool: Tool, program: Invocation, found: Detectors, folder: str) -> Child:
    """Plan the process that runs a program under a tool, with its files in a folder.

    Examples
    --------
    >>> child = plan_child("guard", Invocation("train.py"), Detectors("python3"), "/x")
    >>> child.argv[-3:]
    ('/x/guard.json', 'script', 'train.py')
    """
    record, log = f"{folder}/{tool}.json", f"{folder}/{tool}.log"
    kind = "module" if program.is_module else "script"
    run = (found.python, "-m", "be_runtime.checking.checked_script")
    argv = (*run, tool, record, kind, program.script, *program.arguments)
    if tool == "guard":
        return Child(tool, argv, {"BE_DEBUG": "all"}, record, log)
    if tool == "asan":
        return Child(tool, argv, _asan_variables(found.preload, log), record, log)
    variables = {"BE_DEBUG": "guards", "BE_SANITIZE": "device", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
    return Child(tool, (*_sanitizer_command(tool, found.compute_sanitizer, log), *argv), variables, record, log)


def _asan_variables(preload: Sequence[str], log: str) -> dict[str, str]:
    """Return the variables of a process under AddressSanitizer; the GPU's driver uses addresses that it would take."""
    options = f"log_path={log}:log_exe_name=0:halt_on_error=0"
    return {
        "BE_DEBUG": "guards",
        "BE_SANITIZE": "address,undefined",
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": f"detect_leaks=0:protect_shadow_gap=0:{options}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{options}",
    }


def _sanitizer_command(tool: Tool, program: str, log: str) -> tuple[str, ...]:
    options = ["--log-file", f"{log}.%p", "--require-cuda-init", "no", "--check-exit-code", "no"]
    if tool == "memcheck":
        # An error ends its kernel, not the program, which would end in a flood of others.
        options += ["--destroy-on-device-error", "kernel", "--padding", str(_PADDING), "--report-api-errors", "no"]
    if tool == "initcheck":
        options += ["--check-api-memory-access", "no"]  # copies of whole arrays are no use of each element
    return (program, "--tool", tool, *options)
