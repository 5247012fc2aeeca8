"""Whole loads in the processes of a job: hosts with caches of their own, of which one compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compile.be_runtime.scaling import scaling
from tests.support import jobs
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

    def arguments(self) -> list[tuple[str]]:
        """The loads."""
        folders = [str(cache.parent / "include") for cache in self.caches]
        loads = [["load_cpp_inline", ["k", SOURCE], {"extra_include_paths": [folder]}] for folder in folders]
        return [(json.dumps([load]),) for load in loads]

    def variables(self) -> list[dict[str, str]]:
        own = {"BE_CXX": str(self.compiler), "BE_CLUSTER": "1", "BE_VERBOSE": "1"}
        return [{**own, "BE_CACHE_DIR": str(cache)} for cache in self.caches]

    def compiled(self, name: str) -> int:
        """How often a unit was compiled."""
        return sum(f"{name}." in line for line in (self.folder / "notes").read_text().splitlines())


@pytest.mark.parametrize("count", [2, in_full(8)])
def test_one_host_compiles(tmp_path: Path, count: int):
    hosts = Hosts(tmp_path, count)
    with jobs.running(jobs.LOADER, hosts.arguments(), hosts.variables()) as job:
        answers = job.answers(patience_s=200)
        said = job.end()
    assert len({answer["rows"][0][0] for answer in answers}) == 1, "one library"
    assert [hosts.compiled("k"), hosts.compiled("handler")] == [1, 1], said
    assert sorted(map(jobs.module_source, hosts.caches)) == ["", *["another process of the job"] * (count - 1)]


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
