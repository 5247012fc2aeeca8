r"""Conversion of a build plan to a ninja file.

Ninja passes each command to ``/bin/sh``, so every argument is quoted twice: for the shell, then for ninja. A value in a
ninja file can't have a line break, so an argument with one is written with a shell variable that contains it.

The format is that of https://ninja-build.org/manual.html#ref_lexer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from be_runtime.compile.plan.build_plan import Edge

_LINE_ENDS = r"""n=$(printf '\nx'); n=${n%x}; r=$(printf '\r'); """
_VARIABLES = {"\n": '"$n"', "\r": '"$r"'}


def escape_value(text: str) -> str:
    """Write a text as the value of a ninja variable."""
    return text.replace("$", "$$")


def escape_path(text: str) -> str:
    """Write a path for ninja's build statement.

    Examples
    --------
    >>> print(escape_path("a b:c"))
    a$ b$:c
    """
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def shell_command(argv: Sequence[str], environ: Sequence[tuple[str, str]] = ()) -> str:
    r"""Write one line for ``/bin/sh`` that runs `argv` with every argument intact, and with some variables.

    Examples
    --------
    >>> shell_command(["cc", "a b"], [("LANG", "C")])
    "LANG=C cc 'a b'"
    """
    words = [*(f"{name}={_quote_lines(value)}" for name, value in environ), *map(_quote_lines, argv)]
    has_line_ends = any(end in text for text in (*argv, *(value for _, value in environ)) for end in _VARIABLES)
    return (_LINE_ENDS if has_line_ends else "") + " ".join(words)


def _quote_lines(argument: str) -> str:
    """Quote an argument for the shell, with its line ends as variables."""
    return "".join(_VARIABLES.get(part) or shlex.quote(part) for part in re.split(r"([\n\r])", argument))


def render_ninja(edges: Sequence[Edge]) -> str:
    """Write ``build.ninja`` for a graph of commands; a command's description is its number, which needs no quoting.

    Only files that another command makes are named as inputs: the others exist, and ninja can't express every path.
    """
    made = {name for edge in edges for name in edge.outputs}
    lines = ["ninja_required_version = 1.8", "rule run", "  command = $argv", "  description = $number", ""]
    for number, edge in enumerate(edges):
        outputs = " ".join(map(escape_path, edge.outputs))
        inputs = " ".join(escape_path(name) for name in edge.inputs if name in made)
        lines += [
            f"build {outputs}: run {inputs}",
            f"  argv = {escape_value(shell_command(edge.argv, edge.environ))}",
            f"  number = {number}",
            "",
        ]
    return "\n".join(lines)
