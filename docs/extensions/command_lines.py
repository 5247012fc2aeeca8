"""The directive `command-line`: the reference of a command line, from its parser."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from be_toolchain.cli.parser import EXIT_CODES


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of a parser's commands, in the order of its help."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public way to its own grammar
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.values()


def arguments(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """List the arguments of one command as (how it is written, what it does)."""
    rows = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, (argparse._HelpAction, argparse._VersionAction)):  # noqa: SLF001
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
        value = "" if action.nargs == 0 else str(action.metavar or choices)
        written = ", ".join(f"{flag} {value}".strip() for flag in action.option_strings) or value
        rows.append((written, action.help or ""))
    return rows


def wrap_usage(text: str) -> str:
    """Break a line between options.

    Examples
    --------
    >>> print(wrap_usage("program [--with VALUE] " + "x" * 60))
    program [--with VALUE]
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """
    joined = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(joined, 76, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


class CommandLine(SphinxDirective):
    """``{command-line} module:function``: a section for each command of the parser that the function makes."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        self.env.note_dependency(__file__)
        module, _, function = self.arguments[0].partition(":")
        return [self._section(getattr(import_module(module), function)())]

    def _section(self, parser: argparse.ArgumentParser) -> nodes.section:
        name = parser.prog.removeprefix("python -m ")
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        self.state.document.note_implicit_target(section)
        section += nodes.title("", "", nodes.literal("", name))
        if parser.description:
            section += nodes.paragraph("", parser.description)
        usage = wrap_usage(" ".join(parser.format_usage().removeprefix("usage:").split()))
        section += nodes.literal_block(usage, usage, language="text")
        rows = arguments(parser)
        if rows:
            listed = nodes.definition_list(classes=["options"])
            for written, meaning in rows:
                term = nodes.term("", "", nodes.literal("", written))
                listed += nodes.definition_list_item(
                    "", term, nodes.definition("", nodes.paragraph("", meaning % {"prog": parser.prog}))
                )
            section += listed
        if parser.epilog and parser.epilog != EXIT_CODES:  # the page has a table of the usual codes
            section += nodes.paragraph("", f"{parser.epilog[0].upper()}{parser.epilog[1:]}.")
        section += [self._section(each) for each in commands(parser)]
        return section


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
