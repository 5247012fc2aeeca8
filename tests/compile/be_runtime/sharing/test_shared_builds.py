"""Whole loads in the processes of a job: hosts with caches of their own, of which one compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compile.be_runtime.scaling import scaling
from tests.support import jobs
from tests.support.one_device_each import run_two
from tests.support.requirements import in_full
from tests.support.runtime import ROOT, environment, forwarding_compiler

SOURCE = scaling("twice", "FACTOR", '#include "factor.h"\n')


class Hosts:
    """Hosts with a cache and a folder of headers each, and one compiler that counts its starts."""

    def __init__(self, folder: Path, count: int, *before: str) -> None:
        self.folder = folder
        note = f"case \"$*\" in *' -c '*) echo \"$*\" >> '{folder}/notes';; esac"
        self.compiler = forwarding_compiler(folder / "g++", note, *before)
        self.caches = [folder / f"host{number}" / "cache" for number in range(count)]
        for cache in self.caches:
            header = cache.parent / "include" / "factor.h"
            header.parent.mkdir(parents=True)
            header.write_text("#define FACTOR 2\n")

    def arguments(self, source: str = SOURCE, *, first: int | None = None) -> list[tuple[str]]:
        """The loads, which one host may begin before the others."""
        plans = []
        for number, cache in enumerate(self.caches):
            wait = ["sleep", [0.0 if first in (None, number) else 1.5], {}]
            options = {"extra_include_paths": [str(cache.parent / "include")]}
            plans.append([wait, ["load_cpp_inline", ["k", source], options]])
        return [(json.dumps(plan),) for plan in plans]

    def variables(self) -> list[dict[str, str]]:
        own = {"BE_CXX": str(self.compiler), "BE_CLUSTER": "1", "BE_VERBOSE": "1"}
        return [{**own, "BE_CACHE_DIR": str(cache)} for cache in self.caches]

    def compiled(self, name: str) -> int:
        """How often a unit was compiled."""
        return sum(f"{name}." in line for line in (self.folder / "notes").read_text().splitlines())

    def sources(self) -> list[str]:
        """Where each host has the module from; empty for one that it built."""
        return list(map(jobs.module_source, self.caches))


@pytest.mark.parametrize("count", [2, in_full(8)])
def test_one_host_compiles(tmp_path: Path, count: int):
    hosts = Hosts(tmp_path, count)
    with jobs.running(jobs.LOADER, hosts.arguments(), hosts.variables()) as job:
        answers = job.answers(patience_s=200)
        said = job.end()
    assert len({answer["rows"][0][0] for answer in answers}) == 1, "one library"
    assert [hosts.compiled("k"), hosts.compiled("handler")] == [1, 1], said
    assert sorted(hosts.sources()) == ["", *["another process of the job"] * (count - 1)]


@pytest.mark.full
def test_hosts_with_another_header_or_other_sources_compile_their_own_and_are_told(tmp_path: Path):
    hosts = Hosts(tmp_path, 4)
    header = hosts.caches[2].parent / "include" / "factor.h"
    header.write_text("#define FACTOR 3\n")
    arguments = [*hosts.arguments(first=0)[:3], hosts.arguments(SOURCE.replace("FACTOR *", "-FACTOR *"), first=0)[3]]
    with jobs.running(jobs.LOADER, arguments, hosts.variables()) as job:
        answers = job.answers(patience_s=200)
        said = job.end()
    assert len({answer["rows"][0][0] for answer in answers}) == 3
    assert hosts.sources() == ["", "another process of the job", "", ""]
    assert hosts.compiled("k") == 3
    assert f"k: the archive from another process of the job is of another {header} than the one here" in said[2]
    assert (
        "k: process 3 asks for another kernel of this name than process 0, so both are built; "
        "the difference, from process 0 to process 3 (this one):\n  sources: " in said[3]
    )
    assert "asks for another" not in said[0]


@pytest.mark.full
def test_a_failed_build_fails_each_host_by_its_own_compiler(tmp_path: Path):
    hosts = Hosts(tmp_path, 2)
    arguments = hosts.arguments(SOURCE.replace("FACTOR *", "MISSPELT *"), first=0)
    with jobs.running(jobs.LOADER, arguments, hosts.variables()) as job:
        answers = job.answers(patience_s=200)
        said = job.end()
    assert [answer["rows"][0][0] for answer in answers] == ["BuildError", "BuildError"]
    assert hosts.compiled("k") == 2
    assert "k: process 0 could not build it: BuildError: " in said[1]


@pytest.mark.full
def test_the_program_of_the_page_runs_as_slurm_starts_it(tmp_path: Path):
    page = (ROOT / "docs" / "cluster.md").read_text()
    (tmp_path / "train.py").write_text(page.split("```py\n")[1].split("```")[0])
    hosts = Hosts(tmp_path, 2)
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
        for number, variables in zip("01", hosts.variables(), strict=True)
    ]
    printed = [process.communicate(timeout=200) for process in running]
    assert [out for out, _ in printed] == ["0 [2. 2. 2.]\n", "1 [2. 2. 2.]\n"], printed
    assert hosts.compiled("scaling") == 1


@pytest.mark.full
def test_of_two_processes_with_one_mesh_one_builds_and_both_compute(tmp_path: Path):
    """Each has a device."""
    job = run_two(tmp_path, "cpu")
    assert job.devices == [[2, 1]] * 2
    assert (job.right, job.wrong) == ({"parallel", "reduce"}, set())
    assert (job.built["one_device_each"], job.fetched["one_device_each"], job.compiled) == (1, 1, 1)
