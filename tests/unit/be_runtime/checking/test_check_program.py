"""The choice of tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_runtime.checking.check_program import choose_tools, rewinder
from be_runtime.checking.children import TOOLS, Detectors
from be_runtime.errors import ArgumentError

LIBRARIES = ("libsanitizer.so", "libstdc++.so.6")
ALL = Detectors("python3", {"asan": LIBRARIES, "tsan": LIBRARIES}, "valgrind", "compute-sanitizer")


@pytest.mark.parametrize(
    ("found", "has_gpu", "tools"),
    [
        (ALL, True, tuple(TOOLS)),
        (ALL, False, ("guard", "asan", "tsan", "valgrind")),
        (ALL._replace(compute_sanitizer=""), True, ("guard", "asan", "tsan", "valgrind")),
        (ALL._replace(preload={"tsan": LIBRARIES}, valgrind=""), False, ("guard", "tsan")),
    ],
)
def test_every_tool_that_is_here_runs(found: Detectors, has_gpu: bool, tools: tuple[str, ...]):
    assert choose_tools(None, found, has_gpu=has_gpu) == tools


def test_tools_run_in_one_order():
    assert choose_tools(["memcheck", "guard"], ALL, has_gpu=True) == ("guard", "memcheck")


@pytest.mark.parametrize(
    ("wanted", "found", "has_gpu", "message"),
    [
        ("helgrind", ALL, True, "there is no tool 'helgrind'"),
        ("memcheck", ALL, False, "memcheck can't run here: there is no GPU"),
        ("racecheck", ALL._replace(compute_sanitizer=""), True, "pip install nvidia-cuda-sanitizer-api"),
        ("tsan", ALL._replace(preload={"asan": LIBRARIES}), True, "libtsan"),
        ("valgrind", ALL._replace(valgrind=""), True, "there is no valgrind"),
    ],
)
def test_a_tool_that_is_wanted_and_not_here_is_refused(wanted: str, found: Detectors, has_gpu: bool, message: str):
    with pytest.raises(ArgumentError) as raised:
        choose_tools([wanted], found, has_gpu=has_gpu)
    assert message in str(raised.value)


def test_each_run_reads_standard_input_from_where_it_began(tmp_path: Path):
    (tmp_path / "input").write_text("one\ntwo\n")
    with (tmp_path / "input").open("rb", buffering=0) as file:
        file.readline()
        rewind = rewinder(file.fileno())
        for _ in range(2):
            rewind()
            assert file.read() == b"two\n"


def test_a_pipe_is_read_once():
    reading, writing = os.pipe()
    rewinder(reading)()
    os.close(reading)
    os.close(writing)
