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
    """Print an outcome, that of a command that raised an error to standard error, and return its exit code."""
    if as_json:
        hand_over(json.dumps({"schema": SCHEMA, "command": command, **answer.data}, indent=2))
    else:
        say(answer.text, sys.stderr if "problem" in answer.data else None)
    return answer.code


def size_text(size: int) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size_text(700), size_text(1536), size_text(3 << 20)
    ('700 B', '1.5 KiB', '3.0 MiB')
    """
    if size < 2**10:
        return f"{size} B"
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"
