"""Reports of sanitizers become findings with the kernel, its line and what it did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.checking.device_reports import entry_points, read_device_report
from be_runtime.checking.host_reports import read_host_report

RECORDED = Path(__file__).parent / "recorded"


def test_errors_of_address_sanitizer_and_undefined_behavior_sanitizer_are_told_apart():
    found = read_host_report((RECORDED / "gcc12_asan_ubsan.txt").read_text())
    assert [(each.kernel, each.kind, each.source, each.tool) for each in found] == [
        ("planted_oobw", "heap-buffer-overflow", "planted:8", "address"),
        ("planted_misaligned", "misaligned", "planted:12", "undefined"),
        ("planted_oobr", "heap-buffer-overflow", "planted:10", "address"),
    ]
    assert found[0].message == (
        "planted_oobw: heap-buffer-overflow: write of 4 bytes, 0 bytes behind the end of memory of 1024 bytes in oobw"
    )
    assert "'const double', which requires 8 byte alignment" in found[1].message


def test_a_stack_overflow_has_its_line_though_no_frame_names_the_kernel():
    (found,) = read_host_report((RECORDED / "gcc12_stack.txt").read_text())
    assert (found.kind, found.kernel, found.source) == ("stack-overflow", "", "planted:13")
    assert found.hints


def test_errors_that_follow_outside_of_kernels_are_left_out():
    text = (RECORDED / "gcc12_asan_ubsan.txt").read_text()
    other = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n    #0 0x1 in PyMem_Free obmalloc.c:2\n"
    assert read_host_report(text + other) == read_host_report(text)
    assert [found.kind for found in read_host_report(other)] == ["heap-use-after-free"]


def test_errors_of_compute_sanitizer_are_one_for_each_line():
    found = read_device_report((RECORDED / "compute_sanitizer.txt").read_text(), "memcheck")
    assert [(each.kernel, each.kind, each.source, each.count) for each in found] == [
        ("write_outside_write_outside", "write", "write_outside.cu:8", 1),
        ("write_outside_kernel", "write", "write_outside.cu:8", 1),
        ("misaligned_kernel", "misaligned", "memory_errors.cu:61", 1),
        ("race_kernel", "race", "race.cu:9", 1),
        ("vector_add", "uninitialised", "kernel.cu:8", 1),
    ]
    assert "by thread (256,0,0) of block (0,0,0), 1 bytes after an allocation of 1,024 bytes" in found[0].message
    assert "race.cu:9 and race.cu:10" in found[3].message


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("race_kernel(const float *, float *, long)", b"_Z11race_kernelPKfPfl"),
        ("void ns::race<float, (int)4>(const T1 *)", b"_ZN2ns4raceIfLi4EEEvPKT_"),
        ("(anonymous namespace)::race(float *)", b"_ZN36_GLOBAL__N__0_k_cu_14race4racePf"),
        ("race", b"race"),
    ],
)
def test_a_device_function_is_found_in_its_library(function: str, name: bytes):
    library = b"\0" + name + b"\0be_ffi_k_sort\0be_ffi_k_fill\0be_graph_k_fill\0"
    assert entry_points(function, [library, b"\0be_ffi_other\0"]) == ("k_sort", "k_fill")


@pytest.mark.parametrize("name", [b"_Z14race_kernelabPf", b"races", b"_Z5tracePf"])
def test_another_name_is_none_of_a_device_function(name: bytes):
    assert entry_points("race(float *)", [b"\0" + name + b"\0be_ffi_k_sort\0"]) == ()


@pytest.mark.parametrize("read", [read_host_report, lambda text: read_device_report(text, "memcheck")])
@pytest.mark.parametrize("text", ["", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "hello\n"])
def test_a_report_of_nothing_has_no_findings(read: Callable[[str], object], text: str):
    assert read(text) == ()
