"""The benchmarks run; what they measure on a busy machine is nobody's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from benchmarks.bench import Bench
from benchmarks.figure import Unavailable
from benchmarks.rows import devices, events, load_row

ROOT = Path(__file__).resolve().parents[2]


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "benchmarks", *arguments)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_quick_run_reports_figures_and_no_paths(tmp_path: Path):
    out = tmp_path / "result.json"
    done = _benchmarks("--quick", "--repeat", "2,cold_cpp=1", "--rows", "imports,cold_cpp", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "cold load_cpp_inline" in done.stdout
    text = out.read_text()
    rows = [figure["row"] for figure in json.loads(text)["figures"]]
    assert rows == ["imports"] * 3 + ["cold_cpp"] * 2
    assert [figure["ours"]["count"] for figure in json.loads(text)["figures"]] == [2] * 3 + [1] * 2
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


@pytest.fixture
def bench(tmp_path: Path, tmp_cache: Path) -> Bench:
    """One round of everything, on a machine without CUDA."""
    cxx = resolve(ToolchainRequest()).cxx
    assert cxx is not None
    return Bench(scratch=tmp_path, cxx=cxx, cuda=None, device=None, repeat=1, quick=True)


def test_rows_that_need_no_cuda_measure_cpp_alone(bench: Bench):
    figures = {row: tuple(load_row(row).measure(bench)) for row in ("folder", "warm_many")}
    labels = {row: [figure.label for figure in found] for row, found in figures.items()}
    assert {label.split("_")[1] for found in labels.values() for label in found} == {"cpp"}
    edited = figures["folder"][-1]
    assert edited.label.endswith("1 of 16 files edited")
    everything = figures["folder"][0]
    assert edited.summary.median < everything.summary.median


@pytest.mark.full
def test_sparse_layers_are_timed_beside_plain_jax(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_BENCH_PEERS", "/nowhere/python")
    monkeypatch.setattr(events, "CPU", replace(events.CPU, neurons=400, steps=1, executions=50))
    figures = tuple(events.measure(bench))
    assert [figure.baseline.rpartition(" ")[2] for figure in figures] == [
        *("jnp.dot", "scatter-add", "jax.experimental.sparse.BCOO"),
        *("matrices", "scatter-add") * 2 * len(events.BATCHES),
    ]


@pytest.mark.full
def test_two_devices_are_timed_beside_one(bench: Bench):
    """Two parts of one CPU, with the C++ kernels: the programs of the row for GPUs, which exchange nothing."""
    figures = {figure.label: figure for figure in devices.compare(bench, devices.CPU)}
    kernels = [label.split(", ")[1] for label in figures if label.startswith("a kernel, ")]
    assert kernels[:7] == ["automatic", "one call with its dispatch", "explicit", "manual", "grad", "vmap", "scan"]
    assert sum(label.startswith("training step") for label in figures) == 3
    goals = [figure.goal for figure in figures.values()]
    assert [goals.count(goal) for goal in (devices.CALL_GOAL, None)] == [3, 2]


def test_the_row_of_two_gpus_says_that_they_are_missing(bench: Bench):
    with pytest.raises(Unavailable, match="two GPUs"):
        tuple(load_row("devices").measure(bench))


@pytest.mark.parametrize("row", ["cold_cuda", "cold_large", "fat_binary"])
def test_rows_of_cuda_say_that_it_is_missing(row: str, bench: Bench):
    with pytest.raises(Unavailable, match="no complete CUDA toolkit"):
        tuple(load_row(row).measure(bench))


def test_peers_that_are_not_installed_can_be(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_BENCH_PEERS", "/nowhere/python")
    with pytest.raises(Unavailable, match="make bench-peers"):
        tuple(load_row("peers").measure(bench))


def test_beside_a_python_without_peers_stand_what_every_machine_has(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_BENCH_PEERS", sys.executable)
    figures = tuple(load_row("peers").measure(bench))
    assert {figure.baseline for figure in figures} >= {"handler on ffi.h", "bare compiler"}
    kinds = [figure.label.partition(",")[0] for figure in figures if figure.baseline == "handler on ffi.h"]
    assert kinds == ["cold build", "cached load in a new process", "call in a jitted program"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [("--rows=nothing", "no row nothing"), ("--repeat=0", "above 0"), ("--repeat=nothing=2", "no row nothing")],
)
def test_bad_arguments(argument: str, message: str):
    done = _benchmarks(argument)
    assert done.returncode == 2
    assert message in done.stderr
