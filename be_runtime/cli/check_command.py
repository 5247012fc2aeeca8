"""The command ``check``: runs a program under checked mode and sanitizers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from be_runtime.checking.check_program import Outcome, check_program, choose_tools, lacking_tools
from be_runtime.checking.children import Invocation
from be_runtime.checking.detectors import find_detectors
from be_runtime.checking.merged_findings import as_json, render
from be_runtime.cli.answer import Answer, refusal
from be_runtime.errors import ArgumentError
from be_toolchain.find.device_memory import device_archs
from be_toolchain.report.exit_codes import WORKS
from be_toolchain.terminal import say

FOUND, FAILED_BY_ITSELF = 1, 2
"""Exit codes: something was found; nothing was, but the program failed, or a tool is not here."""


def run(arguments: argparse.Namespace) -> Answer:
    """Run the program and return what was found."""
    words = arguments.module or arguments.program
    if not words:
        return _refused("there is no program to check", "python -m be_runtime check SCRIPT [ARGUMENT ...]")
    if not arguments.module and not Path(words[0]).is_file():
        return _refused(f"there is no script {words[0]}", "to run a module, write -m before its name")
    program = Invocation(words[0], tuple(words[1:]), is_module=bool(arguments.module))
    from be_runtime.load.process import PROCESS

    session = PROCESS.session()
    found = find_detectors(session.system, session.record_dir)
    wanted = arguments.tools.split(",") if arguments.tools else None
    has_gpu = bool(device_archs(session.system, session.record_dir))
    try:
        tools = choose_tools(wanted, found, has_gpu=has_gpu)
    except ArgumentError as error:
        return refusal(error)._replace(code=FAILED_BY_ITSELF)
    outcome = check_program(
        program,
        tools,
        found,
        lacking={} if wanted else lacking_tools(found, has_gpu=has_gpu),
        timeout_s=arguments.timeout,
        say=lambda text: say(f"check: {text}", sys.stderr),
    )
    return _answer(outcome)


def _answer(outcome: Outcome) -> Answer:
    findings = outcome.findings
    text = render(outcome.runs, findings)
    if outcome.error:
        text = f"{text}\n{outcome.error}"
    code = FOUND if any(each.certain for each in findings) else FAILED_BY_ITSELF if outcome.error else WORKS
    return Answer(text, {**as_json(outcome.runs, findings), "error": outcome.error, "exit_code": code}, code)


def _refused(message: str, hint: str) -> Answer:
    return refusal(ArgumentError(message, hints=(hint,)))._replace(code=FAILED_BY_ITSELF)
