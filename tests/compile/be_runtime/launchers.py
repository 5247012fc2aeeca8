"""Real compiler caches with a folder of a test's own, and how often they answered."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Hits = Callable[[], int]

LAUNCHERS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("ccache", "sccache")]
"""What a test is parametrized with; one that is not installed is skipped."""


@contextmanager
def compiler_cache(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hits]:
    """Put a compiler cache before every compiler; the value counts how often it had the answer."""
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", name)
    with {"ccache": _ccache, "sccache": _sccache}[name](folder, monkeypatch) as hits:
        yield hits


@contextmanager
def _ccache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hits]:
    monkeypatch.setenv("CCACHE_DIR", str(folder))
    monkeypatch.delenv("CCACHE_DISABLE", raising=False)

    def hits() -> int:
        counts = dict(line.split("\t") for line in _run("ccache", "--print-stats").splitlines())
        return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])

    yield hits


@contextmanager
def _sccache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hits]:
    monkeypatch.setenv("SCCACHE_DIR", str(folder))
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(_free_port()))
    _run("sccache", "--start-server")

    def hits() -> int:
        told = json.loads(_run("sccache", "--show-stats", "--stats-format", "json"))
        return sum(told["stats"]["cache_hits"]["counts"].values())

    try:
        yield hits
    finally:
        _run("sccache", "--stop-server")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _run(*command: str) -> str:
    """What a command prints; a server that it leaves behind has no pipe of ours to keep open."""
    done = subprocess.run(
        command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    return done.stdout
