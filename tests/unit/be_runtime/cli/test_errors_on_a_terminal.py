"""Errors of both command lines look alike: the word error, red on a terminal, then the message."""

from __future__ import annotations

import contextlib
import re

import pytest

from be_runtime.cli.main import main as runtime
from be_toolchain.cli.main import main as toolchain
from tests.support.terminals import Terminal

COMMANDS = {
    "be_runtime": (runtime, ["explain", "BE999"], "BE101: no error has the code"),
    "be_toolchain": (toolchain, ["explain", "BE999"], "no error has the code"),
    "arguments of be_runtime": (runtime, ["nothing"], "argument COMMAND: invalid choice"),
    "arguments of be_toolchain": (toolchain, ["which", "nothing"], "argument PART: invalid choice"),
}


@pytest.mark.parametrize("way", COMMANDS)
def test_an_error_is_red_on_a_terminal(way: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    command, words, message = COMMANDS[way]
    with contextlib.suppress(SystemExit):
        command(words)
    said = capfd.readouterr().err
    assert re.search(rf"^error: {re.escape(message)}", said, re.MULTILINE)
    if "arguments" in way:
        assert max(map(len, said.splitlines())) <= 80
    monkeypatch.delenv("NO_COLOR", raising=False)
    with capfd.disabled(), Terminal() as terminal, terminal.file() as file, contextlib.suppress(SystemExit):
        monkeypatch.setattr("sys.stderr", file)
        command(words)
    assert f"\x1b[1;31merror:\x1b[0m {message}" in terminal.text
