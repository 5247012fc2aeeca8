from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import __main__ as runner
from benchmarks.bench import Bench
from benchmarks.figure import Figure, Outcome, Row
from benchmarks.report import as_json, duration, origin, table
from tests.support.runtime import ROOT

RATIO = Figure(label="a call", ours=(1.1e-6, 1.1e-6), baseline="theirs", theirs=(1e-6, 1e-6), goal=1.15)
TIME = Figure(label="an import", ours=(0.03, 0.05, 0.04), goal=0.03)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (1.0, "1.00 s"), (0.0123, "12.3 ms"), (0.398, "398 ms"), (1e-6, "1.00 us"), (4e-10, "0.40 ns")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_a_goal_is_for_the_ratio_or_without_a_baseline_for_the_time():
    assert RATIO.met is True
    assert TIME.met is False
    assert replace(TIME, goal=None).met is None


@pytest.mark.parametrize(
    ("ratios", "met"), [((0.99, 1.0, 1.03), True), ((1.01, 1.01, 1.02), False), ((0.9, 1.1, 1.2), False)]
)
def test_within_noise_the_interval_reaches_the_goal_and_the_ratio_is_near_it(ratios: tuple[float, ...], met: bool):
    figure = Figure(label="", ours=ratios, baseline="", theirs=(1.0,) * 3, goal=1.0, within_noise=True)
    assert figure.met is met


def test_the_table_shows_every_figure_and_what_was_left_out():
    outcomes = (Outcome(row="calls", figures=(RATIO, TIME)), Outcome(row="cold", skipped="no nvcc"))
    _, _, ratio, time, left_out = table(outcomes).splitlines()
    cells = ("calls", "1.10 us", "1.00 us theirs", "1.100 [1.100, 1.100]", "<= 1.15", "yes")
    assert all(cell in ratio for cell in cells)
    assert all(cell in time for cell in ("40.0 ms", "<= 30.0 ms", "NO"))
    assert left_out == "cold: left out, no nvcc"


def test_the_json_holds_every_sample():
    report = as_json((Outcome(row="calls", figures=(RATIO, TIME)),), machine={"cores": 2}, run={"commit": "abc"})
    ratio, time = json.loads(json.dumps(report))["figures"]
    assert ratio["theirs"]["samples"] == [1e-6, 1e-6]
    assert ratio["ratio"]["value"] == pytest.approx(1.1)
    assert time["ours"]["samples"] == [0.03, 0.05, 0.04]
    assert time["theirs"] is None


@pytest.mark.parametrize(("file", "where"), [("h200", "NVIDIA H200"), ("cpu", "2 cores of AMD EPYC")])
def test_the_origin_of_figures_is_what_their_file_says(file: str, where: str):
    results = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text())
    rows = {row: [each for each in results["figures"] if each["row"] == row] for row in ("cold_cpp", "peers")}
    counts = {row: {str(each["ours"]["count"]) for each in figures} for row, figures in rows.items()}
    for row, figures in rows.items():
        text = origin(figures, results["run"], results["machine"])
        assert f" runs on {where}, jax {results['machine']['jax']}, {results['run']['date']}." in text
        assert text.startswith("Single" if counts[row] == {"1"} else f"Medians of {counts[row].pop()} ")


def test_a_row_that_fails_keeps_what_it_measured(monkeypatch: pytest.MonkeyPatch):
    def measure(_: Bench) -> Iterator[Figure]:
        yield TIME
        raise RuntimeError("the compiler is gone")

    monkeypatch.setattr(runner, "load_row", lambda _: Row(measure=measure))
    saved: list[Outcome] = []
    outcome = runner.measure_row("cold", Bench.__new__(Bench), saved.append)
    assert [each.figures for each in saved] == [(TIME,), (TIME,)]
    assert (outcome.figures, outcome.skipped) == ((TIME,), runner.FAILED)
