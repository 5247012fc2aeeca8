"""Processes of a job agree on who builds: threads with a store in memory, processes, and processes that compile."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition
from typing import Any

import pytest

from be_runtime.jax.coordination import JobStore
from be_runtime.load.identity import shipped_folder
from tests.compile.be_runtime.scaling import scaling
from tests.compile.be_runtime.store.sharing.member import Member, Plan
from tests.support import jobs
from tests.support.requirements import in_full
from tests.support.runtime import ROOT, environment, forwarding_compiler

MEMBER = "tests.compile.be_runtime.store.sharing.member"
K = ["k", "-O2", "sm_90"]
OTHER = ["other", "-O2", "sm_90"]
Answers = list[dict[str, Any]]


class Memory(jobs.StoreClient):
    """The store's client in memory, which waits for values."""

    def __init__(self) -> None:
        super().__init__({})
        self.changed = Condition()

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        with self.changed:
            super().key_value_set_bytes(key, value, replace)
            self.changed.notify_all()

    def blocking_key_value_get_bytes(self, key: str, patience_ms: int) -> bytes:
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, patience_ms / 1000)
            return super().blocking_key_value_get_bytes(key, patience_ms)


def play(folder: Path, *plans: dict[str, Any]) -> Answers:
    """Let each plan be a thread's, as if it were a process."""
    store = Memory()
    members = [
        Member(number, folder, Plan(**{"loads": [K], **plan}), JobStore(store, number))
        for number, plan in enumerate(plans)
    ]
    with ThreadPoolExecutor(len(plans)) as pool:
        return list(pool.map(Member.run, members))


@contextlib.contextmanager
def members(folder: Path, *plans: dict[str, Any]) -> Generator[jobs.JobUnderTest]:
    texts = [json.dumps({"loads": [K], **plan}) for plan in plans]
    with jobs.running(MEMBER, [(str(folder), text) for text in texts]) as job:
        yield job


def how(answers: Answers, name: str = "k") -> list[str]:
    """How each process got a kernel."""
    return [how for answer in answers for each, how, *_ in answer["results"] if each == name]


def libraries(answers: Answers) -> int:
    """How many different ones there are."""
    return len({row[2] for answer in answers for row in answer["results"]})


def said(answers: Answers, channel: str = "said") -> str:
    return "\n".join(line for answer in answers for line in answer[channel])


def test_one_builds_and_the_others_take_it_each_kernel_once(tmp_path: Path):
    names = [[f"k{number}", "-O2", "sm_90"] for number in range(4)]
    answers = play(tmp_path, *({"loads": names[at:] + names[:at], "with_threads": True} for at in (0, 2, 1)))
    assert [Counter(how(answers, name)) for name, *_ in names] == [{"built": 1, "fetched": 2}] * 4
    assert libraries(answers) == 4
    assert said(answers) + said(answers, "whispered") == ""


def test_a_builder_that_gives_no_sign_of_life_is_replaced_and_goes_on_when_it_wakes(tmp_path: Path):
    builder = {"dies": True, "until": "ended-3"}
    waits = {"after": "building-k-0", "stale_s": 1.0}
    answers = play(tmp_path, builder, waits, waits, {"after": "ended-[12]"})
    assert sorted(how(answers)) == ["built", "built", "fetched", "fetched"]
    assert libraries(answers) == 2
    assert said(answers) in {
        f"k: process 0 of the job has stopped building it, so process {number} builds it now" for number in (1, 2)
    }
    assert answers[3]["whispered"] == [], "the death is known by then"


@pytest.mark.parametrize("size", [1000, 5 << 18])
def test_wrong_bytes_are_built_instead(tmp_path: Path, size: int):
    answers = play(tmp_path, *[{"damages": True, "size": size}] * 2)
    assert how(answers) == ["built", "built"]
    assert "was damaged in transfer" in said(answers, "whispered")


def test_different_sources_by_one_name_are_built_each_and_named(tmp_path: Path):
    answers = play(tmp_path, {}, {"loads": [["k", "-O3", "sm_90"]], "after": "ended-0"})
    assert how(answers) == ["built", "built"]
    assert libraries(answers) == 2
    assert said(answers) == (
        "k: process 1 and process 0 ask for different kernels of this name, so both kernels are built; "
        "the difference, from process 0 to process 1 (this one):\n  source: '-O2' -> '-O3'\n"
        "make sources and options the same on all hosts, or give the kernels different names"
    )


def test_other_architectures_and_redefined_kernels_are_no_mistake(tmp_path: Path):
    redefined = {"loads": [K, ["k", "-O3", "sm_90"], K]}
    answers = play(tmp_path, redefined, redefined, {"loads": [["k", "-O2", "sm_80"]]})
    assert said(answers) == ""
    assert Counter(how(answers)) == {"built": 3, "fetched": 4}


def test_after_a_failed_build_each_builds_for_itself(tmp_path: Path):
    waits = {"after": "building-k-0"}
    answers = play(tmp_path, {"fails": True, "until": "building-k-0"}, waits, waits)
    assert how(answers) == ["failed", "built", "built"]
    assert said(answers, "whispered").count("process 0 could not build it: k.cc:1: error") == 2


def test_what_is_too_large_is_built_by_each(tmp_path: Path):
    two = {"loads": [K, OTHER], "most_bytes": 2 << 20}
    answers = play(tmp_path, two, {**two, "after": "ended-0"})
    assert how(answers) == ["built", "fetched"]
    assert how(answers, "other") == ["built"] * 2
    assert "too large for the job's store" in said(answers, "whispered")


def test_an_entry_that_has_come_is_not_fetched(tmp_path: Path):
    waits = {"is_shared": True, "after": "building-k-0"}
    assert how(play(tmp_path, {"is_shared": True}, waits, waits)) == ["built", "come", "come"]


def test_a_wait_ends_at_the_latest_when_a_build_would(tmp_path: Path):
    answers = play(tmp_path, {"until": "ended-1"}, {"after": "building-k-0", "patience_s": 2.0})
    assert how(answers) == ["built", "built"]
    assert said(answers) == "k: waited 2 s for the job, so it is built here"


@pytest.mark.parametrize(("count", "seconds"), [(2, 0.7), in_full(2, 5.0), in_full(8, 0.7)])
def test_of_real_processes_one_builds(tmp_path: Path, count: int, seconds: float):
    with members(tmp_path, *[{"seconds": seconds}] * count) as job:
        answers = job.answers()
    assert Counter(how(answers)) == {"built": 1, "fetched": count - 1}
    assert libraries(answers) == 1
    assert said(answers) + said(answers, "whispered") == ""


@pytest.mark.full
def test_ctrl_c_ends_a_wait(tmp_path: Path):
    with members(tmp_path, {"until": "never"}, {"after": "building-k-0"}) as job:
        jobs.wait_for(tmp_path, "building-k-0")
        time.sleep(1.5)
        job.processes[1].send_signal(signal.SIGINT)
        assert how(job.answers(1, patience_s=30)) == ["interrupted"]


@pytest.mark.full
def test_a_forked_child_builds_for_itself(tmp_path: Path):
    """Its parent's client would never answer."""
    with members(tmp_path, {}, {"in_child": True, "after": "building-k-0"}) as job:
        answers = job.answers()
    assert how(answers) == ["built", "built"]
    assert answers[1]["results"][0][3] < 2.0
    assert said(answers) == ""


@pytest.mark.full
def test_a_store_that_is_silent_is_not_asked_again(tmp_path: Path):
    """Process 0 has it, and is stopped."""
    with members(tmp_path, {"loads": []}, {"loads": [K, OTHER], "after": "stopped"}) as job:
        assert job.answers(0)
        job.processes[0].send_signal(signal.SIGSTOP)
        (tmp_path / "stopped").write_text("stopped")
        answers = job.answers(1)
        job.processes[0].send_signal(signal.SIGCONT)
    assert [row[1] for row in answers[0]["results"]] == ["built", "built"]
    assert said(answers) == "k: built here, and so are all later entries: the job's store gives no answer in 10 s"


SOURCE = scaling("twice", "FACTOR", '#include "factor.h"\n')


def hosts(folder: Path, count: int) -> list[dict[str, str]]:
    """The variables of hosts with a cache each, and one compiler that notes its starts."""
    note = f"case \"$*\" in *' -c '*) echo \"$*\" >> '{folder}/notes';; esac"
    own = {"BE_CXX": str(forwarding_compiler(folder / "g++", note)), "BE_CLUSTER": "1", "BE_VERBOSE": "1"}
    return [{**own, "BE_CACHE_DIR": str(folder / f"host{number}")} for number in range(count)]


def compiled(folder: Path, name: str) -> int:
    """How often a unit was compiled."""
    return sum(f"{name}." in line for line in (folder / "notes").read_text().splitlines())


@pytest.mark.parametrize("count", [2, in_full(8)])
def test_one_host_compiles(tmp_path: Path, count: int):
    """Each has a folder of headers of its own."""
    plans = []
    for number in range(count):
        (tmp_path / f"include{number}").mkdir()
        (tmp_path / f"include{number}" / "factor.h").write_text("#define FACTOR 2\n")
        options = {"extra_include_paths": [str(tmp_path / f"include{number}")]}
        plans.append((json.dumps([["load_cpp_inline", ["k", SOURCE], options]]),))
    variables = hosts(tmp_path, count)
    with jobs.running(jobs.LOADER, plans, variables) as job:
        answers = job.answers(patience_s=200)
        said = job.end()
    assert len({answer["rows"][0][0] for answer in answers}) == 1, "one library"
    assert [compiled(tmp_path, "k"), compiled(tmp_path, "handler")] == [1, shipped_folder() is None], said
    sources = sorted(jobs.module_source(Path(each["BE_CACHE_DIR"])) for each in variables)
    assert sources == ["", *["another process of the job"] * (count - 1)]


@pytest.mark.full
def test_the_program_of_the_page_runs_as_slurm_starts_it(tmp_path: Path):
    page = (ROOT / "docs" / "cluster.md").read_text()
    (tmp_path / "train.py").write_text(page.split("```py\n")[1].split("```")[0])
    slurm = {"SLURM_JOB_ID": str(jobs.free_port(61440, 65535) - 61440), "SLURM_STEP_NODELIST": "localhost"}
    running = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env=environment(SLURM_NTASKS="2", SLURM_PROCID=number, SLURM_LOCALID=number, **slurm, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, variables in zip("01", hosts(tmp_path, 2), strict=True)
    ]
    printed = [process.communicate(timeout=200) for process in running]
    assert [out for out, _ in printed] == ["0 [2. 2. 2.]\n", "1 [2. 2. 2.]\n"], printed
    assert compiled(tmp_path, "scaling") == 1
