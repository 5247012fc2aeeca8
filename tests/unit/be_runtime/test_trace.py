"""The timeline's file: its format, its writers, and what can't be written."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime import trace
from be_runtime.cli.main import main
from be_runtime.compile.execute import NinjaLog
from be_runtime.compile.plan import Edge
from tests.support.runtime import run_python

WRITER = """
import sys
from pathlib import Path
from be_runtime import trace
for number in range(40):
    with trace.loading(Path(sys.argv[1]), f"{sys.argv[2]}{number}"):
        pass
"""


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def test_events_have_chrome_s_fields(tmp_path: Path):
    path = tmp_path / "trace.json"
    began_ns = time.perf_counter_ns()
    with trace.loading(path, "mm"):
        with trace.span("look up", entry="mm") as found:
            found["result"] = "hit"
        trace.command("linking mm", ("/bin/ld", "a b"), began_ns, began_ns + 2_000_000)
    lane, look_up, link, load = read(path)
    common = {"pid": os.getpid(), "tid": threading.get_native_id(), "ph": "X", "cat": "load"}
    assert look_up == {
        "name": "look up", "args": {"entry": "mm", "result": "hit"}, "ts": look_up["ts"], "dur": look_up["dur"]
    } | common  # fmt: skip
    assert load["name"] == "load mm"
    assert load["ts"] <= look_up["ts"] <= look_up["ts"] + look_up["dur"] <= load["ts"] + load["dur"]
    assert (link["name"], link["cat"], link["dur"]) == ("linking mm", "command", 2000.0)
    assert link["args"] == {"argv": ["/bin/ld", "a b"]}
    assert (lane["ph"], lane["name"], lane["tid"], lane["args"]) == (
        "M", "thread_name", link["tid"], {"name": "commands 1"}
    )  # fmt: skip
    assert link["tid"] != load["tid"]
    assert abs(load["ts"] - time.time_ns() / 1000) < 60e6


def test_there_are_as_many_lanes_as_commands_that_ran_at_once_and_loads_share_them(tmp_path: Path):
    path = tmp_path / "trace.json"
    for _ in range(2):
        with trace.loading(path, "mm"):
            for name, began_us, ended_us in (("c", 20, 30), ("a", 0, 20), ("b", 10, 40), ("d", 40, 50), ("e", 45, 60)):
                trace.command(name, (), began_us * 1000, ended_us * 1000)
    commands = sorted((event for event in read(path) if event["cat"] == "command"), key=lambda event: event["name"])
    first = commands[0]["tid"]
    assert [event["tid"] - first for event in commands[::2]] == [0, 1, 0, 0, 1]
    assert commands[::2] == commands[1::2]


def test_a_file_of_another_program_keeps_all_that_it_has(tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_text('{"displayTimeUnit": "ns", "traceEvents": [{"ph": "i"}]}')
    with trace.loading(path, "mm"):
        pass
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] == "ns"
    assert [event.get("name") for event in document["traceEvents"]] == [None, "load mm"]


def test_a_command_ends_before_its_status_line_is_read_however_late_another_is(tmp_path: Path):
    path = tmp_path / "trace.json"
    one, two = (Edge(("cc",), (), (name,), name, "compile") for name in ("one", "two"))
    with trace.loading(path, "mm"):
        log = NinjaLog(tmp_path)
        (tmp_path / ".ninja_log").write_text("2\t10\t1\tone\tf\n3\t20\t2\ttwo\tf\n")
        time.sleep(0.03)
        log.see(one)
        seen_us = time.time_ns() / 1000
        time.sleep(0.05)
        log.see(two)
        assert [log.seconds("one"), log.seconds("two")] == [0.008, 0.017]
        log.add_to_trace(("ninja",))
    start, first, second = (event for event in read(path) if event["cat"] == "command")
    assert (start["name"], first["name"], second["name"]) == ("starting ninja", "one", "two")
    assert abs(first["ts"] + first["dur"] - seen_us) < 20e3
    assert start["ts"] + start["dur"] == first["ts"]
    assert second["ts"] - first["ts"] == 1000


def event(cat: str, name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 7, "tid": 7, "args": {}}


def test_the_command_lists_phases_and_commands_the_longest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    events = [
        event("load", "hash inputs", 3000, 1000), event("load", "hash inputs", 5000, 500),
        event("command", "linking", 2500, 2000), event("command", "compiling\x1b\n", 2500, 5000),
        event("load", "ninja", 2000, 6000), event("load", "open", 8000, 250.5), event("load", "load mm", 1000, 9000),
        event("load", "look up", 20000, 100), event("load", "load nn", 20000, 400), "foreign", {"name": 3},
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert main(["trace", str(path)]) == 0
    mm, nn = capsys.readouterr().out.rstrip().split("\n\n")
    assert [line.split() for line in mm.splitlines()] == [
        ["load", "mm,", "process", "7:", "9.0", "ms"], ["phases"], ["4.5", "ms", "ninja"],
        ["2.7", "ms", "between", "the", "phases"], ["1.5", "ms", "hash", "inputs", "(2", "times)"],
        ["0.3", "ms", "open"], ["commands,", "some", "of", "which", "ran", "in", "parallel"],
        ["5.0", "ms", r"compiling\x1b\x0a"], ["2.0", "ms", "linking"],
    ]  # fmt: skip
    assert nn.splitlines()[1:] == ["  phases", "         0.3 ms  between the phases", "         0.1 ms  look up"]

    assert main(["trace", str(path), "--json"]) == 0
    loads = json.loads(capsys.readouterr().out)["loads"]
    assert [(load["name"], load["pid"], load["ms"]) for load in loads] == [("load mm", 7, 9.0), ("load nn", 7, 0.4)]
    assert loads[0]["phases"][2] == {"name": "hash inputs", "ms": 1.5, "count": 2}
    assert sum(phase["ms"] for phase in loads[0]["phases"]) == pytest.approx(9.0, abs=0.01)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, "No such file"), ("mine", "can't be read as a trace"), ('{"traceEvents": [{}, 1]}', "has no load")],
)
def test_the_command_refuses_a_file_without_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, expected: str
):
    path = tmp_path / "trace.json"
    if text is not None:
        path.write_text(text)
    assert main(["trace", str(path)]) == 1
    assert expected in capsys.readouterr().err


def test_nothing_is_noted_without_a_file_and_a_load_within_a_load_is_a_part_of_it(tmp_path: Path):
    assert trace.span("a") is trace.span("b")
    with trace.loading(None, "mm"), trace.span("a"):
        trace.command("linking", (), 0, 1)
    path = tmp_path / "trace.json"
    with trace.loading(path, "outer"), trace.loading(path, "inner"), trace.span("a"):
        assert not path.exists()
    assert [event["name"] for event in read(path)] == ["a", "load outer"]


def test_the_phase_that_fails_names_its_error(tmp_path: Path):
    path = tmp_path / "trace.json"
    with pytest.raises(KeyError), trace.loading(path, "mm"), trace.span("a"):
        raise KeyError
    assert [event["args"] for event in read(path)] == [{"error": "KeyError"}] * 2


def test_processes_that_write_at_once_lose_no_load(tmp_path: Path):
    path = tmp_path / "trace.json"
    threads = [threading.Thread(target=run_python, args=(WRITER, str(path), name)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = sorted(event["name"] for event in read(path))
    assert names == sorted(f"load {name}{number}" for name in "ab" for number in range(40))
    assert os.listdir(tmp_path) == ["trace.json"]


def load_twice(path: Path) -> None:
    for _ in range(2):
        with trace.loading(path, "mm"):
            pass


@pytest.mark.parametrize("name", ["absent/trace.json", "folder", "other.json", "text", "fifo"])
def test_a_file_that_can_t_be_written_warns_once_and_stays(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "text").write_text("mine")
    os.mkfifo(tmp_path / "fifo")
    with pytest.warns(RuntimeWarning, match="BE_TRACE: the timeline of loads can't be written to") as seen:
        load_twice(tmp_path / name)
    assert len(seen) == 1
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder", "other.json", "text"]
    assert [(tmp_path / kept).read_text() for kept in ("other.json", "text")] == ["[1]", "mine"]
