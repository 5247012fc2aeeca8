"""Completion of be-toolchain's commands in a shell, by scripts that shtab generates from the grammar."""

from __future__ import annotations

import argparse

import shtab

from be_toolchain.cli.parser import NONE, build_parser
from be_toolchain.known import layouts

COMMAND = "be-toolchain"
"""The program that the distribution installs; shells can't complete the words after ``python -m``."""

STORED = f"{COMMAND} list --names 2>/dev/null"
"""The command that prints the names in the store."""


def _printed_by(command: str) -> shtab.CompleteType:
    """Complete with the words that a command prints; in zsh, shtab's own form runs it once, when the script loads."""
    return {**shtab.cmd(command), "zsh": f"{{compadd \\$({command})}}"}


COMPLETED = {
    ("doctor", "wheels"): shtab.DIRECTORY,
    ("install", "wheels"): shtab.DIRECTORY,
    ("use", "version"): _printed_by(f"echo {NONE}; {STORED} | grep '^cuda-'"),
    ("remove", "version"): _printed_by(STORED),
}
"""The words for arguments of commands that have no choices in the grammar."""


def render_completion(shell: str) -> str:
    """Return the script for a shell.

    Parameters
    ----------
    shell : {"bash", "zsh", "fish"}
        The shell.

    Returns
    -------
    str
        The text that the shell evaluates.

    Examples
    --------
    >>> render_completion("bash").split()[-3:]
    ['-F', '_shtab_be_toolchain', 'be-toolchain']
    """
    parser = build_parser()
    parser.prog = COMMAND
    for (command, argument), words in COMPLETED.items():
        _find(parser, command, argument).complete = words  # type: ignore[attr-defined] # shtab reads it
    _find(parser, "install", "cuda").choices = ("auto", *layouts.PIP_RELEASES)  # the command accepts newer ones, too
    return shtab.complete(parser, shell)


def _find(parser: argparse.ArgumentParser, command: str, argument: str) -> argparse.Action:
    """Return an argument of a command, from private attributes, since argparse has no public ones."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    (found,) = (action for action in commands.choices[command]._actions if action.dest == argument)  # noqa: SLF001
    assert isinstance(found, argparse.Action)
    return found
