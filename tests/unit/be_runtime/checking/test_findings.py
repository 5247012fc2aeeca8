"""Reports of sanitizers become findings, and those of several tools one report with the lines that call the kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.checking.device_reports import entry_points, read_device_report
from be_runtime.checking.host_reports import read_host_report
from be_runtime.checking.merged_findings import ToolRun, as_json, distinct, render, with_callers, with_names
from be_runtime.findings import Finding
from tests.unit.be_runtime.generate.golden_files import check_golden

RECORDED = Path(__file__).parent / "recorded"
OTHER = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n    #0 0x1 in PyMem_Free obmalloc.c:2\n"


def test_errors_of_each_sanitizer_are_told_apart():
    """Those of compute-sanitizer are one for each line, and a stack overflow has its line without a kernel's frame."""
    host, stack, device = (
        (RECORDED / f"{name}.txt").read_text() for name in ("gcc12_asan_ubsan", "gcc12_stack", "compute_sanitizer")
    )
    found = (*read_host_report(host), *read_host_report(stack), *read_device_report(device, "memcheck"))
    rows = (f"{name}: {value}\n" for each in found for name, value in each._asdict().items() if value)
    check_golden(Path(__file__).parent / "golden" / "findings.txt", "".join(rows))


def test_errors_that_follow_outside_of_kernels_are_left_out():
    text = (RECORDED / "gcc12_asan_ubsan.txt").read_text()
    assert read_host_report(text + OTHER) == read_host_report(text)
    assert [found.kind for found in read_host_report(OTHER)] == ["heap-use-after-free"]


@pytest.mark.parametrize(
    ("function", "name", "found"),
    [
        ("race_kernel(const float *, float *, long)", b"_Z11race_kernelPKfPfl", True),
        ("void ns::race<float, (int)4>(const T1 *)", b"_ZN2ns4raceIfLi4EEEvPKT_", True),
        ("(anonymous namespace)::race(float *)", b"_ZN36_GLOBAL__N__0_k_cu_14race4racePf", True),
        ("race", b"race", True),
        *(("race(float *)", name, False) for name in (b"_Z14race_kernelabPf", b"races", b"_Z5tracePf")),
    ],
)
def test_a_device_function_is_found_in_its_library(function: str, name: bytes, found: bool):
    library = b"\0" + name + b"\0be_ffi_k_sort\0be_ffi_k_fill\0be_graph_k_fill\0"
    assert entry_points(function, [library, b"\0be_ffi_other\0"]) == (("k_sort", "k_fill") if found else ())


def test_a_report_of_nothing_has_no_findings():
    for text in ("", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "hello\n"):
        assert read_host_report(text) == read_device_report(text, "memcheck") == ()


GUARD = Finding("guards", "k.f", "k.f writes 4 bytes behind result 0", caller="a.py:3 in main", hints=("look",))
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
        "   guard: writes 4 bytes behind result 0",
        "   address: k.cc:8: write of 4 bytes",
        "   hint: look",
        "note (guard): m was not checked",
        "faults in 1 kernel (guard 1.2 s, asan 2.0 s)",
    ]
    assert render(runs[1:], []) == "nothing found (asan 2.0 s)"
    data = as_json(runs[:1], [GUARD])
    assert data["tools"] == [{"tool": "guard", "outcome": "ran", "seconds": 1.23, "notes": ["m was not checked"]}]
    assert data["findings"] == [GUARD._asdict()]
