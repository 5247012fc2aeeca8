"""The benchmarks run; what they measure on a busy machine is nobody's business."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.bench import Bench
from benchmarks.figure import Figure, LeftOut, Unavailable
from benchmarks.rows import devices, events, load_row
from tests.compile.be_runtime.processes import python
from tests.support.runtime import ROOT


@pytest.mark.full
def test_a_quick_run_reports_figures_and_no_paths(tmp_path: Path):
    out = tmp_path / "result.json"
    arguments = ("--quick", "--repeat", "2,cold_cpp=1", "--rows", "imports,cold_cpp", "--out", str(out))
    done = python(ROOT, "-m", "benchmarks", *arguments)
    assert "cold load_cpp_inline" in done.stdout
    text = out.read_text()
    rows = [figure["row"] for figure in json.loads(text)["figures"]]
    assert rows == ["imports"] * 4 + ["cold_cpp"] * 2
    assert [figure["ours"]["count"] for figure in json.loads(text)["figures"]] == [2] * 4 + [1] * 2
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


@pytest.fixture
def bench(tmp_path: Path, tmp_cache: Path) -> Bench:
    """One round of everything, on a machine without CUDA."""
    cxx = resolve(ToolchainRequest()).cxx
    assert cxx is not None
    return Bench(scratch=tmp_path, cxx=cxx, cuda=None, device=None, repeat=1, quick=True)


@pytest.mark.full
def test_rows_that_need_no_cuda_measure_cpp_alone(bench: Bench):
    figures = {
        row: [each for each in load_row(row).measure(bench) if isinstance(each, Figure)]
        for row in ("folder", "warm_many")
    }
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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("devices", "two GPUs"),
        ("peers", "make bench-peers"),
        *((row, "no complete CUDA toolkit") for row in ("cold_cuda", "cold_large", "fat_binary")),
    ],
)
def test_rows_say_what_is_missing(row: str, message: str, bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_BENCH_PEERS", "/nowhere/python")
    with pytest.raises(Unavailable, match=message):
        tuple(load_row(row).measure(bench))


@pytest.mark.full
def test_beside_a_python_without_peers_stand_what_every_machine_has(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_BENCH_PEERS", sys.executable)
    found = tuple(load_row("peers").measure(bench))
    figures = [each for each in found if isinstance(each, Figure)]
    left_out = {each.name: each.reason for each in found if isinstance(each, LeftOut)}
    assert left_out["FlashInfer"] == "flashinfer-python and jax-tvm-ffi not installed"
    assert {figure.baseline for figure in figures} >= {"handler on ffi.h", "bare compiler"}
    kinds = [figure.label.partition(",")[0] for figure in figures if figure.baseline == "handler on ffi.h"]
    assert kinds == ["first build", "warm load in a new process", "call in a jitted program"]
    first, later = next((each.ours, each.theirs) for each in figures if each.baseline == report.LATER_BUILD)
    assert min(first) > min(later), "a later build found the toolchain and the handler"


@pytest.mark.parametrize(
    ("argument", "message"),
    [("--rows=nothing", "no row nothing"), ("--repeat=0", "above 0"), ("--repeat=nothing=2", "no row nothing")],
)
def test_bad_arguments(argument: str, message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main([argument])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
