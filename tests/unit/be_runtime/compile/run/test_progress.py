"""Builds of several threads share one display."""

from __future__ import annotations

import os
import pty
import threading
import time

import pytest

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.run.progress import Progress


def _build(name: str, seconds: float) -> None:
    with Progress(name, [Edge(argv=("true",), inputs=(), outputs=(), description=f"compiling {name}", tool="compile")]):
        time.sleep(seconds)


def test_builds_at_once_have_a_line_each_and_do_not_write_over_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    leader, follower = pty.openpty()
    with capsys.disabled(), open(follower, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        threads = [
            threading.Thread(target=_build, args=each) for each in (("first", 2.3), ("second", 2.6), ("short", 0.1))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "building first [0/1] 1 s: compiling first\r\nbuilding second" in shown  # one picture of both
    assert shown.count("built first") == shown.count("built second") == 1
    assert "built short" not in shown
    assert shown.count("\x1b[?25l") == 1, "the cursor is hidden by one writer"
