"""Builds of several threads share one display."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import rich.console

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.run.progress import Progress
from tests.support.terminals import Terminal


def _build(name: str, work: Callable[[], object]) -> None:
    with Progress(name, [Edge(argv=("true",), inputs=(), outputs=(), description=f"compiling {name}", tool="compile")]):
        work()


def test_builds_at_once_have_a_line_each_and_do_not_write_over_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    end = threading.Event()
    works = {"first": end.wait, "second": end.wait, "short": lambda: None}
    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        threads = [threading.Thread(target=_build, args=each) for each in works.items()]
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
    late, leaving, console = threading.Event(), threading.Event(), rich.console.Console

    def console_of_a_busy_machine(**options: Any) -> rich.console.Console:
        late.set()
        leaving.wait(60)
        time.sleep(0.2)
        return console(**options)

    def work() -> None:
        late.wait(60)
        leaving.set()

    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setattr("rich.console.Console", console_of_a_busy_machine)
        _build("negate", work)
    assert re.search(r"built negate in \d\.\d s", terminal.text)
