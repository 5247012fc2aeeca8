"""The processes in which a program is checked, as commands and variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Tool = Literal["guard", "asan", "tsan", "valgrind", "memcheck", "racecheck", "initcheck"]

TOOLS: dict[Tool, str] = {
    "guard": "checked mode of be_runtime",
    "asan": "AddressSanitizer and UndefinedBehaviorSanitizer, for C++ modules",
    "tsan": "ThreadSanitizer, for C++ modules",
    "valgrind": "valgrind, 50 times as slow (`--tools` leaves it out): unset memory in C++ modules",
    "memcheck": "compute-sanitizer: accesses outside of an allocation, or misaligned",
    "racecheck": "compute-sanitizer: races in shared memory",
    "initcheck": "compute-sanitizer: reads of memory that was never written",
}
"""Each tool that a program may run under, in this order."""

DEVICE_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck")

SANITIZED: tuple[Tool, ...] = ("asan", "tsan")
"""Tools for which C++ modules are compiled, with a library that handles faults itself."""

SOUGHT: dict[Tool, str] = {
    "asan": "accesses outside of memory in C++ modules",
    "tsan": "races of threads in C++ modules",
    "valgrind": "memory that C++ modules read before they set it, but for what guard saw in results",
    "memcheck": "accesses outside of memory on the GPU",
    "racecheck": "races on the GPU",
    "initcheck": "memory of the GPU that is read before it is set",
}
"""What nobody looks for without a tool."""

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
    preload : dict of str to tuple of str
        Libraries that a process under each of `SANITIZED` begins with; it lacks those that are not there.
    valgrind, compute_sanitizer : str
        Path of the program; empty if there is none.
    """

    python: str
    preload: Mapping[Tool, tuple[str, ...]] = {}
    valgrind: str = ""
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
    if tool in SANITIZED:
        return Child(tool, argv, _sanitized_variables(tool, found.preload[tool], log), record, log)
    variables = {"BE_DEBUG": "guards", "BE_SANITIZE": "device", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
    if tool == "valgrind":
        options = (f"--log-file={log}.%p", "--error-limit=no")
        return Child(tool, (found.valgrind, *options, *argv), variables, record, log)
    return Child(tool, (*_sanitizer_command(tool, found.compute_sanitizer, log), *argv), variables, record, log)


def _sanitized_variables(tool: Tool, preload: Sequence[str], log: str) -> dict[str, str]:
    """Return the variables of a process under a sanitizer of the host compiler.

    AddressSanitizer would take addresses that the GPU's driver uses. ThreadSanitizer sees nothing of Python and XLA; it
    fails where it guesses the size of thread-local memory.
    """
    options = f"log_path={log}:log_exe_name=0:halt_on_error=0"
    variables = {"BE_DEBUG": "guards", "LD_PRELOAD": " ".join(preload)}
    if tool == "tsan":
        own = "exitcode=0:history_size=7:ignore_noninstrumented_modules=1:intercept_tls_get_addr=0"
        unwanted = "report_thread_leaks=0:report_signal_unsafe=0"
        return {**variables, "BE_SANITIZE": "thread", "TSAN_OPTIONS": f"{own}:{unwanted}:{options}"}
    return {
        **variables,
        "BE_SANITIZE": "address,undefined",
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
