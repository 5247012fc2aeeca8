"""Findings of several tools become one report: named, with the lines that call the kernels."""

from __future__ import annotations

from be_runtime.checking.merged_findings import ToolRun, as_json, distinct, render, with_callers, with_names
from be_runtime.findings import Finding

GUARD = Finding("guards", "k.f", "k.f writes 4 bytes behind result 0", caller="a.py:3 in main", hints=("look",))
ASAN = Finding("heap-buffer-overflow", "k_f", "k_f: write of 4 bytes", source="k.cc:8", tool="address")


def test_a_symbol_becomes_the_name_of_its_kernel():
    (found,) = with_names([ASAN], ["other.f", "k.f"])
    assert (found.kernel, found.message) == ("k.f", "k.f: write of 4 bytes")


def test_a_finding_gets_the_line_of_another_one_of_its_kernel_or_of_its_calls():
    named = with_names([ASAN], ["k.f"])
    assert with_callers([GUARD, *named], {})[1].caller == "a.py:3 in main"
    assert with_callers(named, {"k.f": ["a.py:3", "a.py:9"]})[0].caller == "a.py:3 or a.py:9"


def test_equal_words_of_two_tools_are_one_finding():
    again = GUARD._replace(tool="asan")
    assert distinct([GUARD, *with_names([ASAN], ["k.f"]), again]) == (GUARD, *with_names([ASAN], ["k.f"]))


def test_the_report_has_each_kernel_once():
    found = with_callers([GUARD, *with_names([ASAN], ["k.f"])], {})
    runs = [ToolRun("guard", "ran", 1.0, notes=("m was not checked",)), ToolRun("asan", "ran", 2.0)]
    assert render(runs, found).splitlines() == [
        "1. k.f, called at a.py:3 in main",
        "   guard: writes 4 bytes behind result 0",
        "   address: k.cc:8: write of 4 bytes",
        "   hint: look",
        "note (guard): m was not checked",
        "faults in 1 kernel (guard 1.0 s, asan 2.0 s)",
    ]
    assert render(runs[1:], []) == "nothing found (asan 2.0 s)"


def test_the_json_has_every_field():
    data = as_json([ToolRun("guard", "ran", 1.234)], [GUARD])
    assert data["tools"] == [{"tool": "guard", "outcome": "ran", "seconds": 1.23, "notes": []}]
    assert data["findings"] == [GUARD._asdict()]
