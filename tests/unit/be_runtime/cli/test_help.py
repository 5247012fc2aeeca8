"""The help of both command lines: its width, and that each line says what an argument does."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

import be_runtime.cli.parser
import be_toolchain.cli.parser

NO_VERB = re.compile(r"(an?|the|of|with|what|whether|those|them|[\d.].*|[A-Z].*)\b")


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in action.choices.values():
                yield from parsers(each)


PARSERS = {
    each.prog: each
    for build in (be_runtime.cli.parser.build_parser, be_toolchain.cli.parser.build_parser)
    for each in parsers(build())
}


@pytest.mark.parametrize("prog", PARSERS)
def test_help_fits_a_terminal_and_says_what_each_argument_does(prog: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, PARSERS[prog].format_help().splitlines())) <= 80
    for action in PARSERS[prog]._actions:  # noqa: SLF001
        assert action.dest in {"command", "subcommand"} or (action.help and not NO_VERB.match(action.help))


def test_check_shows_that_a_module_has_a_name(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        be_runtime.cli.parser.build_parser().parse_args(["check", "--help"])
    assert "  -m MODULE ... " in capsys.readouterr().out
