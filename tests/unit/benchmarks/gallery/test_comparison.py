"""Samples become comparisons, and comparisons become tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import FOLDER, PAGES
from benchmarks.gallery.comparison import compare
from benchmarks.gallery.tables import machine_name, page_table, summary_table

RESULTS = sorted((FOLDER / "figures").glob("*.json"))


def record(backend: str, *seconds: float) -> dict[str, Any]:
    return {"label": "10 items", "backend": backend, "seconds": list(seconds), "error": ""}


def operation(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "sum", "records": list(records)}]


def test_a_kernel_is_compared_with_the_fastest_plain_form():
    [found] = compare(operation(record("cuda", 1, 2, 1), record("jax, a", 9, 9, 9), record("jax, b", 3, 6, 3)))
    assert (found.best, found.kernel, found.gain.value, found.is_faster) == ("jax, b", 1, 3, True)


@pytest.mark.parametrize(("seconds", "verdict"), [((0.5, 0.5, 0.5), False), ((0.5, 1, 2), None), ((1.004,) * 3, None)])
def test_a_kernel_that_is_not_faster_is_called_so(seconds: tuple[float, ...], verdict: bool | None):
    [found] = compare(operation(record("cpp", 1, 1, 1), record("jax", *seconds)))
    assert found.is_faster is verdict


def test_a_time_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"sum, 10 items: times of \['cpp'\] below zero; measure again"):
        compare(operation(record("cpp", -1, 1, 1), record("jax", 2, 2, 2)))


@pytest.mark.parametrize("records", [[record("cpp", 1.0)], [record("jax", 1.0)], [record("cpp"), record("jax", 1.0)]])
def test_half_a_comparison_is_refused(records: list[dict[str, Any]]):
    with pytest.raises(ValueError, match="sum, 10 items"):
        compare(operation(*records))


def test_tables_have_times_gains_and_verdicts():
    found = compare(operation(record("cpp", 1, 1), record("jax, sort", 0.5, 0.5)))
    assert page_table({"A": found}).splitlines()[2] == (
        "| A | 10 items | 1e+03 ms | 500 ms (sort) | 0.50 [0.50, 0.50]. **Plain JAX is the faster one.** |"
    )
    assert summary_table({"scan": {"A": found}, "lif": {}}).splitlines()[2:] == [
        "| [scan with a gradient](scan.md) | 0.5 |",
        "| [spiking network](lif.md) | not measured |",
    ]


def test_the_tables_of_the_gallery_are_those_of_its_figures():
    found = [json.loads(path.read_text()) for path in RESULTS]
    assert found
    pages = {
        name: {
            machine_name(each["machine"]): compare(each["pages"][name]["operations"])
            for each in found
            if name in each["pages"]
        }
        for name in PAGES
    }
    folder: Path = FOLDER / "figures"
    assert (folder / "summary.inc").read_text() == summary_table(pages)
    assert {name: (folder / f"{name}.inc").read_text() for name in PAGES} == {
        name: page_table(machines) for name, machines in pages.items()
    }
    assert [name for name in PAGES if (folder / f"{name}.svg").stat().st_size > 100_000] == []
