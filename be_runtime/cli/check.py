"""The command ``check``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from be_runtime.cli.main import Answer, refusal
from be_runtime.debugging.check import as_json, check_program, choose_tools, lacking_tools, render
from be_runtime.debugging.sanitizers import Invocation, find_detectors
from be_runtime.errors import ArgumentError
from be_runtime.load.process import PROCESS
from be_toolchain.find.record import device_archs
from be_toolchain.terminal import WORKS, say

FOUND, FAILED_BY_ITSELF = 1, 2
"""Exit codes of ``check``: a fault was found; no fault was found, but the program failed or a tool is missing."""


def run_check(arguments: argparse.Namespace) -> Answer:
    """Run a program under the tools, and report its faults."""
    wanted = arguments.tools.split(",") if arguments.tools else None
    try:
        program = _program(arguments)
        session = PROCESS.session()
        found = find_detectors(session.system, session.record_dir)
        has_gpu = bool(device_archs(session.system, session.record_dir))
        tools = choose_tools(wanted, found, has_gpu=has_gpu)
    except ArgumentError as error:
        return refusal(error)._replace(code=FAILED_BY_ITSELF)
    with _ending_with_us():
        outcome = check_program(
            program,
            tools,
            found,
            lacking={} if wanted else lacking_tools(found, has_gpu=has_gpu),
            timeout_s=arguments.timeout,
            say=lambda text: say(f"check: {text}", sys.stderr),
        )
    findings = outcome.findings
    text = render(outcome.runs, findings)
    if outcome.error:
        text = f"{text}\n{outcome.error}"
    code = FOUND if any(each.certain for each in findings) else FAILED_BY_ITSELF if outcome.error else WORKS
    return Answer(text, {**as_json(outcome.runs, findings), "error": outcome.error, "exit_code": code}, code)


@contextlib.contextmanager
def _ending_with_us() -> Iterator[None]:
    """End the checked program, and remove its files, if a signal ends this process, as ``timeout`` does."""
    signals = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in signals:
        signal.signal(each, _end)
    try:
        yield
    finally:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _program(arguments: argparse.Namespace) -> Invocation:
    """Return the program to check.

    Raises
    ------
    ArgumentError
        The program does not exist.
    """
    words = arguments.module or arguments.program
    if not words:
        hint = "python -m be_runtime check SCRIPT [ARGUMENT ...]"
        raise ArgumentError("no program to check", hints=(hint,))
    if not arguments.module and not Path(words[0]).is_file():
        hint = "to run a module, write -m before its name"
        raise ArgumentError(f"the script {words[0]} does not exist", hints=(hint,))
    return Invocation(words[0], tuple(words[1:]), is_module=bool(arguments.module))
