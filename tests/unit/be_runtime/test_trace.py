"""The time line's file: its format, its writers, and what can't be written."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime import trace
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


def test_events_have_chrome_s_fields_and_commands_lanes_of_their_own(tmp_path: Path):
    path = tmp_path / "trace.json"
    began_ns = time.perf_counter_ns()
    with trace.loading(path, "mm"):
        with trace.span("look up", entry="mm") as found:
            found["result"] = "hit"
        trace.command("linking mm", ("/bin/ld", "a b"), began_ns, began_ns + 2_000_000)
        trace.command("linking nn", ("/bin/ld",), began_ns, began_ns + 1_000_000)
    look_up, link, lane, other, _, load = read(path)
    common = {"pid": os.getpid(), "tid": threading.get_native_id(), "ph": "X", "cat": "load"}
    assert look_up == {
        "name": "look up", "args": {"entry": "mm", "result": "hit"}, "ts": look_up["ts"], "dur": look_up["dur"]
    } | common  # fmt: skip
    assert load["name"] == "load mm"
    assert load["ts"] <= look_up["ts"] < look_up["ts"] + look_up["dur"] <= load["ts"] + load["dur"]
    assert (link["name"], link["cat"], link["dur"]) == ("linking mm", "command", 2000.0)
    assert link["args"] == {"argv": ["/bin/ld", "a b"]}
    assert (lane["ph"], lane["name"], lane["tid"], lane["args"]) == (
        "M", "thread_name", link["tid"], {"name": "linking mm"}
    )  # fmt: skip
    assert len({link["tid"], other["tid"], load["tid"]}) == 3
    assert abs(load["ts"] - time.time_ns() / 1000) < 60e6


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
    with pytest.warns(RuntimeWarning, match="BE_TRACE: the time line of loads can't be written to") as seen:
        load_twice(tmp_path / name)
    assert len(seen) == 1
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder", "other.json", "text"]
    assert [(tmp_path / kept).read_text() for kept in ("other.json", "text")] == ["[1]", "mine"]
