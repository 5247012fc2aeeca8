"""Each command works beside a process that clears the cache: what is gone is left out, and nothing looks damaged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import be_runtime
from be_runtime.cache import Entry, Store
from be_runtime.cli import main as cli

COMMANDS = (
    *(["list", "--all"], ["stats"], ["verify"], ["show", "a", "--files"], ["why", "a"]),
    *(["export", "{}/entries.be"], ["import", "{}/entries.be"], ["prune", "--max-size", "0"], ["clear", "--all"]),
)
ROUNDS = 15


def test_commands_beside_clear(
    put: Callable[..., Entry], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    over = threading.Event()

    def build_and_clear() -> None:
        while not over.is_set():
            put("a")
            put("b")
            Store(cache).clear()

    thread = threading.Thread(target=build_and_clear)
    thread.start()
    try:
        for number in range(ROUNDS):
            for words in COMMANDS:
                code = cli.main(["cache", *(word.format(tmp_path) for word in words)])
                printed = capsys.readouterr()
                told = f"{words}, round {number}: {printed.out}{printed.err}"
                assert code in (0, 1), told
                assert "internal error" not in told
                assert "damaged" not in printed.out.replace("0 damaged", ""), told
            be_runtime.write_compile_commands(tmp_path / "compile_commands.json")
    finally:
        over.set()
        thread.join()
