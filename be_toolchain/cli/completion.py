"""Scripts that complete be-toolchain's commands in a shell, made from its grammar. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from be_toolchain.known import catalog

COMMAND = "be-toolchain"
"""The program that the distribution installs; shells cannot complete what follows ``python -m``."""

VERSIONS = {("install", "--cuda"): ("auto", *catalog.PIP_RELEASES)}
"""Words that are offered for an option of a command, which takes others too."""

STORED = f"{COMMAND} list --names 2>/dev/null"
"""Prints the names in the store."""

FROM_STORE = {"use": f"{STORED} | grep ^cuda-", "remove": STORED}
"""Commands whose first word is a name in the store, and what prints those that they take."""

ALSO = {"use": ("none",)}
"""Words that such a command takes too."""


class Command(NamedTuple):
    """What may follow one command.

    Parameters
    ----------
    name, summary : str
        The command, and one line about it.
    words : tuple of str
        Its options, and the words that it takes without one.
    choices : tuple of (option, words)
        The words that an option takes; an empty tuple where that is a path.
    asks : str
        The command line that prints further words; empty where there are none.
    """

    name: str
    summary: str
    words: tuple[str, ...]
    choices: tuple[tuple[str, tuple[str, ...]], ...]
    asks: str = ""


def list_commands(parser: argparse.ArgumentParser) -> tuple[Command, ...]:
    """Every command of a grammar.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        With subcommands.

    Returns
    -------
    tuple of Command
        In the order of the grammar.
    """
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001 - argparse has no public way to list them
    summaries = {action.dest: action.help or "" for action in commands._choices_actions}  # noqa: SLF001
    return tuple(_describe(name, summaries[name], below) for name, below in commands.choices.items())


def _describe(name: str, summary: str, parser: argparse.ArgumentParser) -> Command:
    """One command."""
    actions = parser._actions  # noqa: SLF001
    options = [word for action in actions for word in action.option_strings if word.startswith("--")]
    plain = [str(word) for action in actions if not action.option_strings for word in action.choices or ()]
    choices = tuple(
        (word, tuple(map(str, action.choices or ())) or VERSIONS.get((name, word), ()))
        for action in actions
        for word in action.option_strings
        if action.nargs != 0
    )
    words = (*ALSO.get(name, ()), *plain, *options)
    return Command(name=name, summary=summary, words=words, choices=choices, asks=FROM_STORE.get(name, ""))


def render_completion(commands: tuple[Command, ...], shell: str) -> str:
    """The script for a shell.

    Parameters
    ----------
    commands : tuple of Command
        Of `list_commands`.
    shell : {"bash", "zsh", "fish"}
        Whose language.

    Returns
    -------
    str
        To be evaluated or sourced. Where an option takes a path, the shell completes files.

    Examples
    --------
    >>> use = Command(name="use", summary="prefer one", words=("--help",), choices=())
    >>> print(render_completion((use,), "fish").splitlines()[-1])
    complete -c be-toolchain -n '__fish_seen_subcommand_from use' -l 'help'
    """
    if shell == "fish":
        return "\n".join(_fish(commands))
    script = "\n".join(_bash(commands))
    return f"autoload -Uz bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script


def _bash(commands: tuple[Command, ...]) -> Iterator[str]:
    """A function of bash, which zsh takes as well: words of the grammar alone, so that nothing needs quoting."""
    names = " ".join(command.name for command in commands)
    yield "_be_toolchain() {"
    yield '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""'
    yield '  if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'    words="{names} --help --version"'
    yield "  else"
    yield '    case "${COMP_WORDS[1]} $before" in'
    for command in commands:
        for option, choices in command.choices:
            answer = f'words="{" ".join(choices)}"' if choices else 'COMPREPLY=($(compgen -f -- "$word")); return'
            yield f'      "{command.name} {option}") {answer} ;;'
    for command in commands:
        # Only directly after the command: the program takes a moment to answer.
        if command.asks:
            yield f'      "{command.name} {command.name}") words="{" ".join(command.words)} $({command.asks})" ;;'
        yield f'      "{command.name} "*) words="{" ".join(command.words)}" ;;'
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield f"complete -F _be_toolchain {COMMAND}"


def _fish(commands: tuple[Command, ...]) -> Iterator[str]:
    """One line of fish for each word."""
    yield f"complete -c {COMMAND} -f"
    for command in commands:
        summary = command.summary.replace("\\", "\\\\").replace("'", "\\'")
        yield f"complete -c {COMMAND} -n __fish_use_subcommand -a {command.name} -d '{summary}'"
    for command in commands:
        condition = f"complete -c {COMMAND} -n '__fish_seen_subcommand_from {command.name}'"
        taken = dict(command.choices)
        if command.asks:
            yield f"{condition} -a '({command.asks})'"
        for word in command.words:
            if not word.startswith("--"):
                yield f"{condition} -a '{word}'"
                continue
            choices = taken.get(word)
            rest = "" if choices is None else f" -x -a '{' '.join(choices)}'" if choices else " -r -F"
            yield f"{condition} -l '{word.removeprefix('--')}'{rest}"
