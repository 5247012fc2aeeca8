"""Real processes of a job agree on who builds; the builds sleep. `tests/support/jobs.py` starts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import jobs
from tests.support.requirements import in_full

MEMBER = "tests.compile.be_runtime.sharing.programs.member"
K = ["k", "-O2", "sm_90"]


@contextlib.contextmanager
def members(folder: Path, *plans: dict[str, Any]) -> Generator[jobs.JobUnderTest]:
    texts = [json.dumps({"loads": [K], **plan}) for plan in plans]
    with jobs.running(MEMBER, [(str(folder), text) for text in texts]) as job:
        yield job


def how(answers: list[dict[str, Any]], name: str = "k") -> list[str]:
    """How each process got a kernel."""
    return [how for answer in answers for each, how, *_ in answer["results"] if each == name]


def libraries(answers: list[dict[str, Any]]) -> int:
    """How many different ones there are."""
    return len({row[2] for answer in answers for row in answer["results"]})


def said(answers: list[dict[str, Any]], channel: str = "said") -> str:
    return "\n".join(line for answer in answers for line in answer[channel])


@pytest.mark.parametrize(("count", "seconds"), [in_full(2, 5.0), (8, 0.7)])
def test_one_process_builds_and_the_others_take_it(tmp_path: Path, count: int, seconds: float):
    with members(tmp_path, *[{"seconds": seconds}] * count) as job:
        answers = job.answers()
    assert Counter(how(answers)) == {"built": 1, "fetched": count - 1}
    assert libraries(answers) == 1
    assert said(answers) + said(answers, "whispered") == ""


def test_several_threads_share_several_kernels(tmp_path: Path):
    names = [[f"k{number}", "-O2", "sm_90"] for number in range(4)]
    plans = [{"loads": names[at:] + names[:at], "with_threads": True} for at in (0, 2)]
    with members(tmp_path, *plans) as job:
        answers = job.answers()
    assert [Counter(how(answers, name)) for name, *_ in names] == [{"built": 1, "fetched": 1}] * 4
    assert said(answers) == ""


def test_nobody_waits_for_a_process_that_does_not_load(tmp_path: Path):
    with members(tmp_path, {}, {"loads": []}, {}, {"loads": [], "delay_s": 30}) as job:
        answers = job.answers(0, 2, patience_s=25)
    assert sorted(how(answers)) == ["built", "fetched"]


@pytest.mark.parametrize("ends", ["killed", in_full("exits")])
def test_a_builder_that_ends_is_replaced(tmp_path: Path, ends: str):
    later = {"delay_s": 0.4}
    latest = {"delay_s": 8.0}
    builder = {"seconds": 0.6, "exits": True} if ends == "exits" else {"seconds": 60}
    with members(tmp_path, later, builder, later, latest) as job:
        pid = int(jobs.wait_for(tmp_path, "building-k-1").read_text())
        if ends == "killed":
            os.kill(pid, signal.SIGKILL)
        answers = job.answers(0, 2)
        assert sorted(how(answers)) == ["built", "fetched"]
        assert 3.0 < max(row[3] for answer in answers for row in answer["results"]) < 6.0
        assert said(answers) in {
            f"k: process 1 of the job has stopped building it, so process {number} builds it now" for number in (0, 2)
        }
        last = job.answers(3)
        assert how(last) == ["fetched"]
        assert last[0]["results"][0][3] < 1.0, "the death is known by then"
    assert libraries(answers + last) == 1


def test_a_builder_that_is_stopped_is_replaced_and_goes_on_when_it_wakes(tmp_path: Path):
    with members(tmp_path, {"delay_s": 0.4}, {"seconds": 1.0}, {"delay_s": 9.0}) as job:
        pid = int(jobs.wait_for(tmp_path, "building-k-1").read_text())
        jobs.stop_for(pid, 7.0)
        answers = job.answers()
    assert how(answers) == ["built", "built", "fetched"]
    assert libraries(answers) == 2
    assert "k: process 1 of the job has stopped building it, so process 0 builds it now" in said(answers)


@pytest.mark.parametrize("size", [1000, 5 << 18])
def test_wrong_bytes_are_built_instead(tmp_path: Path, size: int):
    plan = {"damages": True, "size": size}
    with members(tmp_path, plan, plan) as job:
        answers = job.answers()
    assert how(answers) == ["built", "built"]
    assert "was damaged on the way" in said(answers, "whispered")


def test_different_sources_by_one_name_are_built_each_and_named(tmp_path: Path):
    other = {"loads": [["k", "-O3", "sm_90"]]}
    with members(tmp_path, {}, {}, {**other, "delay_s": 0.2}, {**other, "delay_s": 0.2}) as job:
        answers = job.answers()
    assert Counter(how(answers)) == {"built": 2, "fetched": 2}
    assert libraries(answers) == 2
    lines = said(answers).splitlines()
    assert [line for line in lines if line.startswith("  ")] == ["  source: '-O2' -> '-O3'"] * 2
    assert {line.partition(" than ")[0] for line in lines[::3]} == {
        f"k: process {number} asks for another kernel of this name" for number in (2, 3)
    }
    assert all(" than process 0, " in line or " than process 1, " in line for line in lines[::3])
    assert set(lines[2::3]) == {"make sources and options the same on all hosts, or give the kernels different names"}
    assert all(line.endswith(f" to {line.split()[1]} {line.split()[2]} (this one):") for line in lines[::3])


def test_other_architectures_and_redefined_kernels_are_no_mistake(tmp_path: Path):
    redefined = [K, ["k", "-O3", "sm_90"], K]
    with members(tmp_path, {"loads": redefined}, {"loads": redefined}, {"loads": [["k", "-O2", "sm_80"]]}) as job:
        answers = job.answers()
    assert said(answers) == ""
    assert Counter(how(answers)) == {"built": 3, "fetched": 4}


def test_after_a_failed_build_each_builds_for_itself(tmp_path: Path):
    with members(tmp_path, {"fails": True}, {"delay_s": 0.3}, {"delay_s": 0.3}) as job:
        answers = job.answers()
    assert how(answers) == ["failed", "built", "built"]
    assert said(answers, "whispered").count("process 0 could not build it: k.cc:1: error") == 2


def test_what_is_too_large_is_built_by_each(tmp_path: Path):
    two = {"loads": [["k", "-O2", "sm_90"], ["other", "-O2", "sm_90"]], "most_bytes": 2 << 20}
    with members(tmp_path, two, {**two, "delay_s": 0.3}) as job:
        answers = job.answers()
    assert Counter(how(answers)) == {"built": 1, "fetched": 1}
    assert Counter(how(answers, "other")) == {"built": 2}
    assert "too large for the job's store" in said(answers, "whispered")


def test_an_entry_that_has_come_is_not_fetched(tmp_path: Path):
    plan = {"is_shared": True}
    with members(tmp_path, plan, {**plan, "delay_s": 0.3}, {**plan, "delay_s": 0.3}) as job:
        answers = job.answers()
    assert how(answers) == ["built", "come", "come"]


def test_a_wait_ends_at_the_latest_when_a_build_would(tmp_path: Path):
    with members(tmp_path, {"seconds": 20}, {"delay_s": 0.3, "patience_s": 2.0}) as job:
        answers = job.answers(1)
    assert how(answers) == ["built"]
    assert said(answers) == "k: waited 2 s for the job, so it is built here"
    assert answers[0]["results"][0][3] < 6.0


def test_ctrl_c_ends_a_wait(tmp_path: Path):
    with members(tmp_path, {"seconds": 60}, {"delay_s": 0.3}) as job:
        jobs.wait_for(tmp_path, "building-k-0")
        time.sleep(1.5)
        began = time.monotonic()
        job.processes[1].send_signal(signal.SIGINT)
        assert how(job.answers(1)) == ["interrupted"]
        assert time.monotonic() - began < 30


def test_a_forked_child_builds_for_itself(tmp_path: Path):
    """Its parent's client would never answer."""
    with members(tmp_path, {}, {"in_child": True, "delay_s": 0.3}) as job:
        answers = job.answers()
    assert how(answers) == ["built", "built"]
    assert answers[1]["results"][0][3] < 2.0
    assert said(answers) == ""


def test_a_store_that_is_silent_is_not_asked_again(tmp_path: Path):
    """Process 0 has it, and is stopped."""
    with members(tmp_path, {"loads": []}, {"loads": [K, ["other", "-O2", "sm_90"]], "delay_s": 2.0}) as job:
        assert job.answers(0)
        job.processes[0].send_signal(signal.SIGSTOP)
        answers = job.answers(1)
        job.processes[0].send_signal(signal.SIGCONT)
    assert [row[1] for row in answers[0]["results"]] == ["built", "built"]
    assert said(answers) == "k: built here, and so is all that follows: the job's store gives no answer in 10 s"
