"""Builds of several threads share one display."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import rich.console

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.run import progress
from tests.support.terminals import Terminal


def build(name: str, work: Callable[[], object]) -> None:
    with progress.Progress(name, [Edge(("true",), (), (), description=f"compiling {name}", tool="compile")]):
        work()


def test_builds_at_once_have_a_line_each_and_do_not_write_over_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    end = threading.Event()
    works = {"first": end.wait, "second": end.wait, "short": lambda: None}
    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        threads = [threading.Thread(target=build, args=each) for each in works.items()]
        for thread in threads:
            thread.start()
        terminal.await_text("building second")
        end.set()
        for thread in threads:
            thread.join()
    shown = terminal.text
    assert re.search(r"building first \[0/1\] \d s: compiling first\r\nbuilding second", shown), "one picture of both"
    assert shown.count("built first") == shown.count("built second") == 1
    assert "built short" not in shown
    assert shown.count("\x1b[?25l") == 1, "the cursor is hidden by one writer"


def test_a_build_that_ends_before_its_line_is_there_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    late, console = threading.Event(), rich.console.Console

    def console_of_a_busy_machine(**options: Any) -> rich.console.Console:
        late.set()
        display = progress._Display._newest  # noqa: SLF001 - its event says that the build has left
        assert display is not None
        assert display._changed.wait(60)  # noqa: SLF001
        return console(**options)

    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setattr("rich.console.Console", console_of_a_busy_machine)
        build("negate", lambda: late.wait(60))
    assert re.search(r"built negate in \d\.\d s", terminal.text)
