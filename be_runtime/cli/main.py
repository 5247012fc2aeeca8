"""The command line ``python -m be_runtime``, also called ``be-runtime``, and the outcomes of its commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from be_runtime.cli.parser import build_parser
from be_runtime.errors import BeRuntimeError
from be_toolchain.cli.guard import guarded
from be_toolchain.errors import ToolchainError
from be_toolchain.terminal import WORKS, hand_over, say, say_error, say_markdown

SCHEMA = 1
"""The version of the JSON; it increases if a field changes its meaning or is removed."""

FAILED = 1
"""The exit code of a command that raised an error."""


class Answer(NamedTuple):
    """The outcome of a command.

    Parameters
    ----------
    text : str
        Text that is printed.
    data : dict
        Fields of the JSON.
    code : int
        Exit code.
    is_markdown : bool
        Whether the text is Markdown.
    """

    text: str
    data: dict[str, object]
    code: int = WORKS
    is_markdown: bool = False


def refusal(error: BeRuntimeError | ToolchainError) -> Answer:
    """Return the outcome of a command that raised an error."""
    problem = {"code": error.code, "message": error.message, "hints": list(error.hints)}
    return Answer(f"{error.code}: {error}", {"problem": problem}, FAILED)


def print_answer(command: str, answer: Answer, *, as_json: bool) -> int:
    """Print an outcome, to standard error if the command raised an error, and return its exit code."""
    if as_json:
        hand_over(json.dumps({"schema": SCHEMA, "command": command, **answer.data}, indent=2))
    elif answer.is_markdown:
        say_markdown(answer.text)
    elif "problem" in answer.data:
        say_error(answer.text)
    else:
        say(answer.text)
    return answer.code


def size_text(size: int) -> str:
    """Return a number of bytes as text.

    Examples
    --------
    >>> size_text(700), size_text(1536), size_text(3 << 20)
    ('700 B', '1.5 KiB', '3.0 MiB')
    """
    if size < 2**10:
        return f"{size} B"
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


COMMANDS = {
    "build": "commands.run_build",
    "cache clear": "cache_change.clear",
    "cache export": "cache_change.export",
    "cache import": "cache_change.import_file",
    "cache keygen": "cache_change.keygen",
    "cache list": "cache_show.list_entries",
    "cache path": "cache_show.path",
    "cache prune": "cache_change.prune",
    "cache show": "cache_show.show",
    "cache sign": "cache_change.sign",
    "cache stats": "cache_show.stats",
    "cache verify": "cache_show.verify",
    "cache why": "cache_show.why",
    "check": "check.run_check",
    "cmake-dir": "commands.run_cmake",
    "explain": "commands.run_explain",
    "report": "report.run_report",
    "show": "commands.run_show",
    "stubs": "stubs.run_stubs",
    "trace": "commands.run_trace",
    "tune": "commands.run_tune",
}
"""The module and the function of each command. It takes the parsed arguments and returns an `Answer`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. The default is the arguments of the process.

    Returns
    -------
    int
        Exit code. Usage errors raise SystemExit, as in argparse.
    """
    return guarded(lambda: _main(argv), "be_runtime")


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return WORKS
    if not sys.flags.safe_path and "" not in sys.path:
        sys.path.append("")  # unlike `python -m`, the script be-runtime does not search the working folder
    name = " ".join(filter(None, (arguments.command, getattr(arguments, "subcommand", ""))))
    module, function = COMMANDS[name].split(".")
    try:
        # Each command imports only its own module, since others import JAX, which takes seconds.
        answer: Answer = getattr(import_module(f"be_runtime.cli.{module}"), function)(arguments)
    except (BeRuntimeError, ToolchainError) as error:
        answer = refusal(error)
    return print_answer(name, answer, as_json=arguments.json)
