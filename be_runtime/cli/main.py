"""The command line, ``python -m be_runtime``. Each command loads its own module."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from be_runtime.cli.answer import Answer, print_answer, refusal
from be_runtime.cli.parser import build_parser
from be_runtime.errors import BeRuntimeError
from be_toolchain.cli.guard import guarded
from be_toolchain.errors import ToolchainError
from be_toolchain.report.exit_codes import WORKS

COMMANDS = {
    "build": "build_command",
    "cache": "cache.command",
    "check": "check_command",
    "cmake-dir": "cmake_command",
    "explain": "explain_command",
    "report": "report_command",
    "show": "show_command",
    "stubs": "stubs_command",
    "tune": "tune_command",
}
"""The module of each command, whose function ``run`` takes the parsed arguments and returns an `Answer`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process unless given.

    Returns
    -------
    int
        Exit code; usage errors leave through SystemExit, as argparse does.
    """
    return guarded(lambda: _main(argv), "be_runtime")


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return WORKS
    try:
        answer: Answer = import_module(f"be_runtime.cli.{COMMANDS[arguments.command]}").run(arguments)
    except (BeRuntimeError, ToolchainError) as error:
        answer = refusal(error)
    name = " ".join(filter(None, (arguments.command, getattr(arguments, "subcommand", ""))))
    return print_answer(name, answer, as_json=arguments.json)
