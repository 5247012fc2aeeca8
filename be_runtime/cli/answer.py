"""The outcome of a command, for people and for programs."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

from be_runtime.errors import BeRuntimeError
from be_toolchain.errors import ToolchainError
from be_toolchain.report.exit_codes import WORKS
from be_toolchain.terminal import hand_over, say

SCHEMA = 1
"""Raised whenever a field of the JSON changes its meaning."""

FAILED = 1
"""The exit code of a command that was not possible."""


class Answer(NamedTuple):
    """The outcome of a command.

    Parameters
    ----------
    text : str
        Text for people.
    data : dict
        Fields for programs, as JSON has them.
    code : int
        Exit code.
    """

    text: str
    data: dict[str, object]
    code: int = WORKS


def refusal(error: BeRuntimeError | ToolchainError) -> Answer:
    """Return the outcome of a command that raised an error."""
    problem = {"code": error.code, "message": error.message, "hints": list(error.hints)}
    return Answer(f"{error.code}: {error}", {"problem": problem}, FAILED)


def print_answer(command: str, answer: Answer, *, as_json: bool) -> int:
    """Print an outcome, that of a failed command to standard error, and return its exit code."""
    if as_json:
        hand_over(json.dumps({"schema": SCHEMA, "command": command, **answer.data}, indent=2))
    else:
        say(answer.text, sys.stderr if answer.code == FAILED else None)
    return answer.code
