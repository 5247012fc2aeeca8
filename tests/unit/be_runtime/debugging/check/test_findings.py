"""Checks by name, the tools under which a program is checked, and their reports as findings and as one report."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from be_runtime import ArgumentError, Findings, checks
from be_runtime.checks import CHECKS, Checks, Finding, call_text, parse_checks
from be_runtime.debugging import sanitizers
from be_runtime.debugging.check import as_json, choose_tools, offset_of, render
from be_runtime.debugging.sanitizers import (
    TOOLS,
    Detectors,
    Invocation,
    Tool,
    ToolRun,
    distinct,
    entry_points,
    plan_child,
    read_device_report,
    read_host_report,
    with_callers,
    with_names,
)
from be_runtime.own_files import INCLUDE_DIR
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

RECORDED = Path(__file__).parent / "recorded"
OTHER = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n    #0 0x1 in PyMem_Free obmalloc.c:2\n"


def test_errors_of_each_sanitizer_are_told_apart():
    """Those of compute-sanitizer are one for each line, and a stack overflow has its line without a kernel's frame."""
    names = ("gcc12_asan_ubsan", "gcc12_stack", "compute_sanitizer")
    host, stack, device = ((RECORDED / f"{name}.txt").read_text() for name in names)
    found = (*read_host_report(host), *read_host_report(stack), *read_device_report(device, "memcheck"))
    rows = (f"{name}: {value}\n" for each in found for name, value in each._asdict().items() if value)
    check_golden(Path(__file__).parent / "golden" / "findings.txt", "".join(rows))


def test_errors_that_follow_outside_of_kernels_are_left_out():
    text = (RECORDED / "gcc12_asan_ubsan.txt").read_text()
    assert read_host_report(text + OTHER) == read_host_report(text)
    assert [found.kind for found in read_host_report(OTHER)] == ["heap-use-after-free"]


SYMBOLS = {
    (b"_Z11race_kernelPKfPfl", "race_kernel(const float *, float *, long)"): True,
    (b"_ZN2ns4raceIfLi4EEEvPKT_", "void ns::race<float, (int)4>(const T1 *)"): True,
    (b"_ZN36_GLOBAL__N__0_k_cu_14race4racePf", "(anonymous namespace)::race(float *)"): True,
    (b"race", "race"): True,
    **{(name, "race(float *)"): False for name in (b"_Z14race_kernelabPf", b"races", b"_Z5tracePf")},
}


def test_a_device_function_is_found_in_its_library():
    for (name, function), found in SYMBOLS.items():
        library = b"\0" + name + b"\0be_ffi_k_sort\0be_ffi_k_fill\0be_graph_k_fill\0"
        assert entry_points(function, [library, b"\0be_ffi_other\0"]) == (("k_sort", "k_fill") if found else ())


def test_a_report_of_nothing_has_no_findings():
    for text in ("", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "hello\n"):
        assert read_host_report(text) == read_device_report(text, "memcheck") == ()


GUARD = Finding("guards", "k.f", "k.f writes 4 bytes past result 0", caller="a.py:3 in main", hints=("look",))
ASAN = Finding("heap-buffer-overflow", "k_f", "k_f: write of 4 bytes", source="k.cc:8", tool="address")
(NAMED,) = with_names([ASAN], ["other.f", "k.f"])


def test_a_symbol_becomes_the_name_of_its_kernel_and_gets_the_line_of_another_finding_or_of_its_calls():
    assert (NAMED.kernel, NAMED.message) == ("k.f", "k.f: write of 4 bytes")
    assert with_callers([GUARD, NAMED], {})[1].caller == "a.py:3 in main"
    assert with_callers([NAMED], {"k.f": ["a.py:3", "a.py:9"]})[0].caller == "a.py:3 or a.py:9"
    assert distinct([GUARD, NAMED, GUARD._replace(tool="asan")]) == (GUARD, NAMED), "equal words of two tools"


def test_the_report_has_each_kernel_once_and_json_every_field():
    runs = [ToolRun("guard", "ran", 1.234, notes=("m was not checked",)), ToolRun("asan", "ran", 2.0)]
    assert render(runs, with_callers([GUARD, NAMED], {})).splitlines() == [
        "1. k.f, called at a.py:3 in main",
        "   guard: writes 4 bytes past result 0",
        "   address: k.cc:8: write of 4 bytes",
        "   hint: look",
        "note (guard): m was not checked",
        "faults in 1 kernel (guard 1.2 s, asan 2.0 s)",
    ]
    assert render(runs[1:], []) == "nothing found (asan 2.0 s)"
    data = as_json(runs[:1], [GUARD])
    assert data["tools"] == [{"tool": "guard", "outcome": "ran", "seconds": 1.23, "notes": ["m was not checked"]}]
    assert data["findings"] == [GUARD._asdict()]


GOLDEN = Path(__file__).parent / "golden"
PRELOADED: tuple[Tool, ...] = ("asan", "tsan")
PRELOAD = {tool: (f"/lib/lib{tool}.so", "/lib/libstdc++.so.6") for tool in PRELOADED}
ALL = Detectors("python3", PRELOAD, "/usr/bin/valgrind", "/cuda/bin/compute-sanitizer")


def test_every_tool_that_is_here_runs_in_one_order_and_others_are_refused_if_they_are_wanted():
    bare, poor = Detectors("python3"), ALL._replace(preload={"tsan": PRELOAD["tsan"][:1]}, valgrind="")
    rows = [answer(choose_tools, None, found, has_gpu=False) for found in (ALL, poor, bare)]
    rows += [answer(choose_tools, None, found, has_gpu=True) for found in (ALL, ALL._replace(compute_sanitizer=""))]
    rows += [answer(choose_tools, ["memcheck", "guard"], ALL, has_gpu=has_gpu) for has_gpu in (True, False)]
    rows += [answer(choose_tools, [tool], bare, has_gpu=True) for tool in ("helgrind", *TOOLS)]
    check_golden(GOLDEN / "wanted.txt", "\n".join(rows) + "\n")


def test_each_child_runs_the_program_with_its_arguments():
    children = [plan_child(tool, Invocation("train.py", ("--steps", "3")), ALL, "/folder") for tool in TOOLS]
    children.append(plan_child("guard", Invocation("pkg.train", ("a",), is_module=True), ALL, "/folder"))
    text = "".join(
        f"{child.tool}, with {child.record} and {child.log}\n  {shlex.join(child.argv)}\n"
        + "".join(f"  {name}={value}\n" for name, value in child.variables.items())
        for child in children
    )
    check_golden(GOLDEN / "children.txt", text)


def test_each_run_reads_standard_input_from_where_it_began_and_a_pipe_once(tmp_path: Path):
    (tmp_path / "input").write_text("one\ntwo\n")
    with (tmp_path / "input").open("rb", buffering=0) as file:
        file.readline()
        assert offset_of(file.fileno()) == len("one\n")
    reading, writing = os.pipe()
    assert offset_of(reading) is None
    os.close(reading)
    os.close(writing)


def names(given: Any) -> tuple[str, ...]:
    return parse_checks(given).names


def test_checks_are_named_in_the_order_of_the_table():
    assert names(True) == names("all") == names("") == names(["all"]) == names("all,") == tuple(CHECKS)
    but_repeat = tuple(name for name in CHECKS if name != "repeat")
    assert names("all,-repeat") == names("-repeat") == names(["-repeat"]) == but_repeat
    assert names("inputs, guards") == names(("inputs", "guards")) == ("guards", "inputs")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((text, "unknown check") for text in ("guard", "-guard", "guards inputs", "guards,,nothing")),
        *((each, "checks must be a bool or names of checks") for each in (3, None, [1], {"guards": 1}.values())),
    ],
)
def test_what_names_no_checks(given: Any, words: str):
    with pytest.raises(ArgumentError, match=words) as caught:
        parse_checks(given)
    assert "no check" not in words or "guards, unwritten" in caught.value.hints[0]


def test_a_way_to_report_that_does_not_exist():
    with pytest.raises(ArgumentError, match="'raise', 'warn' or 'collect', not 'ignore'"):
        parse_checks(True, "ignore")
    assert checks.active() is None


def test_each_check_has_a_bit():
    bits = [Checks((name,)).bits for name in CHECKS]
    assert bits == [1 << index for index in range(len(CHECKS))]
    assert Checks((), "raise").bits == 0
    assert Checks((), "warn").bits == Checks((), "collect").bits > sum(bits)


def test_the_text_of_a_call():
    every = parse_checks(True)
    text = call_text("m.f", "a\nb.py:3", every, once=False, hidden=2)
    assert text.split("\n") == ["m.f", "a b.py:3", str(every.bits), "2", "2", ""]
    assert call_text("m.f", "", every, once=True, hidden=0).split("\n")[3] == "1"
    for names, runs in (("-unwritten", "2"), ("-repeat", "2"), ("-unwritten,-repeat", "1"), ("guards", "1")):
        assert call_text("m.f", "", parse_checks(names), once=False, hidden=0).split("\n")[3] == runs
    assert every.without("repeat") == parse_checks("-repeat")
    layouts = [None, (1, 0)]
    assert call_text("m.f", "", every, once=False, hidden=0, layouts=layouts).split("\n")[5] == "- 1,0"


def test_a_report_of_findings_that_are_fetched_when_they_are_read():
    one = Finding("guards", "m.f", "m.f writes", caller="a.py:3", source="k.cu:7", hints=("do this",))
    assert Findings().report() == "no findings"
    found = Findings(lambda: found.add([one, one], ["a note"]))
    assert (len(found), found[0], found[:1], found.notes) == (1, one, (one,), ("a note",))
    assert found.report() == "m.f writes\n  kernel: k.cu:7\n  called at a.py:3\n  hint: do this\n\nnote: a note"
    assert repr(found) == found.report(), "a notebook shows it"
    place = Finding("bounds", "m.f", "m.f: k.cu:7: index 0 is 6", source="k.cu:7")
    assert str(place) == "m.f: k.cu:7: index 0 is 6", "a place that the message names is not repeated"


def test_the_end_of_a_state_has_the_name_that_reports_are_searched_for():
    header = (INCLUDE_DIR / "brainevent" / "state.h").read_text()
    assert f"void {sanitizers._END_OF_STATE}(" in header  # noqa: SLF001
