"""What the benchmarks measure and how: sources, the children's environment, statistics and reports."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.signature import SourceText
from be_runtime.signature.discovery import discover
from benchmarks import __main__ as runner
from benchmarks.bench import HERE, KERNELS, Bench, child_environment
from benchmarks.build_log import perfect_seconds
from benchmarks.figure import Figure, Outcome, Row
from benchmarks.generated import folder_file, many_entries
from benchmarks.goals import HEAD, README, write_goals
from benchmarks.report import as_json, duration, how_to_read, origin, table
from benchmarks.rows import row_names
from benchmarks.stats import alternating, paired_ratio, summarize
from tests.support.runtime import ROOT


def test_what_would_change_a_measurement_is_kept_from_children():
    environ = {"PATH": "/bin", "BE_COMPILER_LAUNCHER": "ccache", "XLA_FLAGS": "--x", "PYTHONPATH": "/theirs"}
    found = child_environment(environ, Path("/cache"), {"CCACHE_DISABLE": None, "JAX_PLATFORMS": "cpu"})
    assert {"BE_COMPILER_LAUNCHER", "XLA_FLAGS", "CCACHE_DISABLE"} & found.keys() == set(), "a row took the last back"
    assert found["PYTHONPATH"] == f"{HERE.parent}:/theirs"
    assert (found["PATH"], found["BE_CACHE_DIR"], found["JAX_PLATFORMS"]) == ("/bin", "/cache", "cpu")


def test_the_readme_says_how_every_row_is_taken():
    readme = (HERE / "README.md").read_text()
    assert [name for name in row_names() if f"| `{name}` |" not in readme] == []


def test_the_readme_has_the_goals_of_the_results():
    readme = README.read_text(encoding="utf-8")
    assert HEAD in readme
    assert write_goals(readme) == readme, "python -m benchmarks.goals"


def _entries(text: str) -> list[str]:
    return [entry.name for entry in discover([SourceText(name="source", text=text)])]


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_sources_are_made_by_rule(language: str):
    """Each file of a folder is larger and has names of its own; an edition changes a constant, and not the size."""
    texts = [folder_file(language, index) for index in range(16)]
    assert [_entries(text) for text in texts] == [[f"stage_{index}"] for index in range(16)]
    assert sorted(texts, key=len) == texts
    assert "@index@" not in texts[0]
    before, after = (folder_file(language, 8, edition).splitlines() for edition in (0, 1))
    changed = [line for line, other in zip(before, after, strict=True) if line != other]
    assert changed
    assert all(line.strip().startswith("sum = sum * v") for line in changed)
    assert _entries(many_entries(language, 200)) == [f"scale_{index}" for index in range(200)]


def test_the_large_file_is_what_its_row_says():
    text = (KERNELS / "large.cu").read_text()
    assert 480 <= text.count("\n") <= 520
    assert len(_entries(text)) == 12


def test_perfect_scheduling_keeps_every_core_busy_and_links_after():
    log = "# compiling a.cu (1: cicc): 3.00 s\n$ cicc: 9.00 s\n# compiling b.cu: 1.00 s\n# linking: 0.25 s\n$ g++\n"
    assert perfect_seconds(log, cores=2) == pytest.approx(2.25)
    assert perfect_seconds(log, cores=4) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="no timed command"):
        perfect_seconds("# compiling a.cu\n$ nvcc\n", cores=2)


DURATIONS = st.floats(min_value=1e-9, max_value=1e3)
PAIRS = st.lists(st.tuples(DURATIONS, DURATIONS), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("rounds", "order"), [(0, ""), (1, "ABC"), (2, "ABCCBA"), (3, "ABCCBAABC"), (4, "ABCCBAABCCBA")]
)
def test_rounds_alternate(rounds: int, order: str):
    assert "".join(name for group in alternating("ABC", rounds) for name in group) == order


def test_a_summary_has_the_samples_in_few_numbers():
    summary = summarize([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (summary.count, summary.median, summary.minimum, summary.maximum) == (5, 3.0, 1.0, 5.0)
    assert summary.spread == pytest.approx(2 / 3)
    assert summarize([2.0]).spread == 0.0
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


def test_the_ratio_is_the_median_of_ratios_and_one_outlier_does_not_move_it():
    assert paired_ratio([1.1, 1.2, 1.0, 90.0, 1.1], [1.0] * 5).value == pytest.approx(1.1)


def test_more_pairs_narrow_the_interval():
    generator = random.Random(1)  # noqa: S311 - no secret
    ours = [1.1 + generator.gauss(0, 0.05) for _ in range(200)]
    few, many = (paired_ratio(ours[:count], [1.0] * count) for count in (10, 200))
    assert many.high - many.low < few.high - few.low
    assert many.low < 1.1 < many.high


def test_pairs_of_one_process_count_once():
    ours = [1.0] * 50 + [1.2] * 50 + [1.1] * 50
    alone, together = paired_ratio(ours, [1.0] * 150), paired_ratio(ours, [1.0] * 150, block=50)
    assert (together.low, together.high) == (1.0, 1.2)
    assert together.high - together.low > alone.high - alone.low

    ratio = paired_ratio([1.0, 1.2, 1.1], [1.0] * 3, block=3)
    assert ratio.low < ratio.high, "a single process is resampled by pairs"


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        *((ours, theirs, "pairs are needed") for ours, theirs in (([], []), ([1.0], []), ([1.0], [1.0, 2.0]))),
        *(([1.0], [bad], "above 0") for bad in (0.0, -1.0)),
    ],
)
def test_what_has_no_partner_or_no_duration_is_refused(ours: list[float], theirs: list[float], says: str):
    with pytest.raises(ValueError, match=says):
        paired_ratio(ours, theirs)


@given(PAIRS, st.integers(1, 5))
def test_the_interval_is_within_the_ratios(pairs: list[tuple[float, float]], block: int):
    estimate = paired_ratio(*zip(*pairs, strict=True), block=block, resamples=50)
    ratios = [a / b for a, b in pairs]
    assert min(ratios) <= estimate.low <= estimate.high <= max(ratios)
    assert min(ratios) <= estimate.value <= max(ratios)


@given(PAIRS, st.floats(min_value=1e-3, max_value=1e3))
def test_neither_the_unit_of_time_nor_a_drift_of_the_machine_matters(pairs: list[tuple[float, float]], unit: float):
    plain, drifted = zip(*pairs, strict=True), zip(*_slower(pairs, unit), strict=True)
    values = [paired_ratio(*columns, resamples=50).value for columns in (plain, drifted)]
    assert values[0] == pytest.approx(values[1])


def _slower(pairs: list[tuple[float, float]], unit: float) -> list[tuple[float, float]]:
    return [(unit * number * ours, unit * number * theirs) for number, (ours, theirs) in enumerate(pairs, 1)]


RATIO = Figure(label="a call", ours=(1.1e-6, 1.1e-6), baseline="theirs", theirs=(1e-6, 1e-6), goal=1.15)
TIME = Figure(label="an import", ours=(0.03, 0.05, 0.04), goal=0.03)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (1.0, "1.00 s"), (0.0123, "12.3 ms"), (0.398, "398 ms"), (1e-6, "1.00 µs"), (4e-10, "0.40 ns")],
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
    cells = ("calls", "1.10 µs", "1.00 µs theirs", "1.100 [1.100, 1.100]", "<= 1.15", "yes")
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


@pytest.mark.parametrize(
    ("file", "where"), [("h100", "a machine with an NVIDIA H100 80GB HBM3"), ("cpu", "2 cores of an AMD EPYC")]
)
def test_the_origin_of_figures_is_what_their_file_says(file: str, where: str):
    results = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text())
    rows = {row: [each for each in results["figures"] if each["row"] == row] for row in ("cold_cpp", "peers")}
    counts = {row: sorted({each["ours"]["count"] for each in figures}) for row, figures in rows.items()}
    for row, figures in rows.items():
        text = origin(figures, results["run"], results["machine"])
        assert f" runs with JAX {results['machine']['jax']} on {where}, {results['run']['date']}." in text
        told = " to ".join(map(str, dict.fromkeys((counts[row][0], counts[row][-1]))))
        assert text.startswith("Single" if counts[row] == [1] else f"Medians of {told} ")


def test_ratios_of_groups_are_told_apart():
    figures = json.loads((ROOT / "benchmarks" / "results" / "h100.json").read_text())["figures"]
    read = {row: how_to_read([each for each in figures if each["row"] == row]) for row in ("peers", "calls", "imports")}
    assert "in groups" in read["peers"]
    assert read["calls"].endswith("not the ratio of the medians.")
    assert read["imports"] == ""


def test_a_row_that_fails_keeps_what_it_measured(monkeypatch: pytest.MonkeyPatch):
    def measure(_: Bench) -> Iterator[Figure]:
        yield TIME
        raise RuntimeError("the compiler is gone")

    monkeypatch.setattr(runner, "load_row", lambda _: Row(measure=measure))
    saved: list[Outcome] = []
    outcome = runner.measure_row("cold", Bench.__new__(Bench), saved.append)
    assert [each.figures for each in saved] == [(TIME,), (TIME,)]
    assert (outcome.figures, outcome.skipped) == ((TIME,), runner.FAILED)
