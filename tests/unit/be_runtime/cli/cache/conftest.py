"""A cache in a temporary folder, made by builds that compile nothing, and its commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import BuildOutput, Entry, Store, make_key
from be_runtime.cli import main as cli

Json = Callable[..., dict[str, Any]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "x.h"
    path.write_text("one")
    return path


@pytest.fixture
def put(cache: Path, header: Path) -> Callable[..., Entry]:
    """Put an entry into the cache."""

    def make(
        name: str, *flags: str, kind: str = "module", content: bytes = b"code", sources: Sequence[str] = ()
    ) -> Entry:
        def build(staging: Path) -> BuildOutput:
            (staging / "m.so").write_bytes(content)
            return BuildOutput(outputs=("m.so",), dependencies=(header,))

        store = Store(cache / "toolchain" if kind == "handler" else cache)
        fields = (("name", name), ("flags", flags), ("sources", sources), ("archs", ["sm_80", "sm_90"]))
        return store.get_or_build(make_key(kind, *fields), build)

    return make


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Json:
    """Run a command with ``--json``, and return what it printed."""

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        assert cli.main(["cache", *words, "--json"]) == code
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert printed["command"] == f"cache {words[0]}"
        return printed

    return run


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command, and return its text."""

    def run(*words: str, code: int = 0) -> str:
        assert cli.main(["cache", *words]) == code
        printed = capsys.readouterr()
        assert not (printed.out and printed.err)
        return printed.out + printed.err

    return run
