"""`BE_TRACE`: the timeline of a CUDA build for two architectures, and of the second build with its flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from tests.support.cuda import source

PARTS = {"make and keep native", "make and keep dryrun", "make and keep handler"}


def test_the_time_line_has_nvcc_s_phases_and_the_parts_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    made: list[tuple[set[str], list[str]]] = []
    for number in range(2):
        path = tmp_path / f"{number}.json"
        monkeypatch.setenv("BE_TRACE", str(path))
        text = f"{source('arithmetic')}\n// {number}\n"
        be_runtime.load_cuda_inline(f"traced{number}", text, compute_capability="8.0,9.0", auto_register=False)
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
        phases, commands = ([event["name"] for event in events if event["cat"] == cat] for cat in ("load", "command"))
        made.append((set(phases), commands))
    (first, commands), (second, _) = made
    assert first > PARTS
    assert second.isdisjoint(PARTS)
    assert "make and keep preamble" in second - first
    for program, count in (("cicc", 2), ("ptxas", 2), ("cudafe++", 1), ("fatbinary", 1)):
        assert sum(f": {program})" in name for name in commands) == count
    assert commands.count("linking") == commands.count("starting ninja") == 1
