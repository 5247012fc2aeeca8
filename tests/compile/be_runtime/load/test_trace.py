"""`BE_TRACE`: the timeline of a real build, and of a load from the cache."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cli.main import main
from be_runtime.errors import BuildError
from tests.compile.be_runtime.load.sources import source, write

SOURCE = source(one=1)
USUAL = ["resolve the toolchain", "make the key", "look up"]
BUILT = ["take the lock", "import the compiler modules", "generate", "plan", "ninja", "hash inputs", "publish"]
PARTS = {"make and keep native", "make and keep handler"}
"""The phases of the first build with a toolchain."""
SLACK_US = 2000
"""The most by which the clocks of the test and of the timeline may differ."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BE_TRACE", str(tmp_path / "trace.json"))
    return tmp_path / "trace.json"


def events(path: Path, cat: str) -> list[dict[str, Any]]:
    found = [event for event in json.loads(path.read_text())["traceEvents"] if event["cat"] == cat]
    return sorted(found, key=lambda event: event["ts"])


def is_within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    ends = [event["ts"] + event["dur"] for event in (inner, outer)]
    return bool(inner["ts"] >= outer["ts"] and ends[0] <= ends[1])


def test_a_build_and_a_load_from_the_cache_have_their_phases(path: Path):
    began_us = time.time_ns() / 1000
    be_runtime.load_cpp_inline("traced", SOURCE, auto_register=False)
    load, *phases = events(path, "load")
    assert load["name"] == "load traced"
    assert began_us - SLACK_US < load["ts"] < load["ts"] + load["dur"] < time.time_ns() / 1000 + SLACK_US
    assert all(is_within(phase, load) for phase in phases)
    names = list(dict.fromkeys(phase["name"] for phase in phases if phase["name"] not in PARTS))
    assert names == [*USUAL, *BUILT, "open", "prune the cache", "register"]
    assert {phase["name"] for phase in phases} > PARTS
    assert phases[2]["args"] == {"entry": "traced", "result": "miss"}

    commands = events(path, "command")
    (ninja,) = (phase for phase in phases if phase["name"] == "ninja")
    assert all(is_within(command, ninja) for command in commands)
    assert (commands[0]["name"], commands[-1]["name"]) == ("starting ninja", "linking")
    assert commands[0]["ts"] + commands[0]["dur"] == commands[1]["ts"]
    assert all(command["args"]["argv"][0].startswith("/") and command["dur"] > 0 for command in commands)

    before = len(events(path, "load"))
    be_runtime.load_cpp_inline("traced", SOURCE, auto_register=False)
    warm = events(path, "load")[before:]
    assert [phase["name"] for phase in warm] == ["load traced", *USUAL, "open", "register"]
    assert warm[3]["args"] == {"entry": "traced", "result": "hit"}
    assert events(path, "command") == commands


def test_commands_of_a_folder_that_run_at_once_are_in_lanes(path: Path, tmp_path: Path):
    folder = write(tmp_path / "folder", **{name: source(**{name: 1}) for name in ("one", "two", "three")})
    be_runtime.load_cpp_dir(folder, auto_register=False, ninja_workers=2)
    commands = events(path, "command")
    assert [command["name"] for command in commands].count("starting ninja") == 2  # objects, then the library
    lanes: dict[int, list[dict[str, Any]]] = {}
    for command in commands:
        lanes.setdefault(command["tid"], []).append(command)
    assert len(lanes) == 2
    for lane in lanes.values():
        assert all(one["ts"] + one["dur"] <= two["ts"] for one, two in pairwise(lane))
    kept = [phase for phase in events(path, "load") if phase["name"] == "make and keep object"]
    assert [phase["args"] for phase in kept] == [{"entry": "folder"}] * 3


def test_a_module_of_another_store_has_the_time_of_asking(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    be_runtime.load_cpp_inline("carried", SOURCE, auto_register=False)
    be_runtime.export_prebuilt(tmp_path / "prebuilt")
    assert main(["cache", "export", str(tmp_path / "exported")]) == 0
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "other"))
    assert main(["cache", "import", str(tmp_path / "exported")]) == 0
    for variable, folder, expected in (
        (
            "BE_JIT",
            "missing",
            [*USUAL, "take the lock", "ask other stores", "share", "open", "prune the cache", "register"],
        ),
        ("BE_PREBUILT_DIR", str(tmp_path / "prebuilt"), ["load prebuilt"]),
    ):
        path.unlink()
        monkeypatch.setenv(variable, folder)
        be_runtime.load_cpp_inline("carried", SOURCE, auto_register=False)
        assert [event["name"] for event in events(path, "load")] == ["load carried", *expected]
    capsys.readouterr()
    assert main(["trace", str(path)]) == 0
    assert "load prebuilt" in capsys.readouterr().out


def test_a_build_that_fails_has_a_time_line_too(path: Path):
    with pytest.raises(BuildError):
        be_runtime.load_cpp_inline("broken", source(one="absent"), auto_register=False)
    named = {event["name"]: event["args"] for event in events(path, "load")}
    assert named["ninja"] == named["load broken"] == {"error": "BuildError"}


def test_a_file_that_can_t_be_written_fails_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_TRACE", str(tmp_path / "absent" / "trace.json"))
    with pytest.warns(RuntimeWarning, match=r"BE_TRACE: the timeline of loads can't be written to .*No such file"):
        module = be_runtime.load_cpp_inline("untraced", SOURCE, auto_register=False)
    assert module.function_names == ["one"]
