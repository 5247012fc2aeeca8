"""``python -m be_runtime check`` puts compute-sanitizer around a program, and names kernels, lines and callers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from be_runtime.debugging.sanitizers import find_detectors
from be_toolchain.machine.local_system import LocalSystem
from tests.support.planted.try_all import PROGRAM, kernels
from tests.support.runtime import environment

KERNELS = {kernel.stem: kernel for kernel in kernels("cuda")}


@pytest.fixture(autouse=True)
def detectors(tmp_path: Path) -> None:
    if not find_detectors(LocalSystem(), tmp_path).compute_sanitizer:
        pytest.skip("there is no compute-sanitizer")


@pytest.mark.parametrize(
    ("name", "tool", "kind", "line"),
    [
        ("write_outside", "memcheck", "write", "write_outside.cu:8"),
        ("misaligned", "memcheck", "misaligned", "misaligned.cu:8"),
        ("race", "racecheck", "race", "race.cu:9"),
        ("uninitialised_read", "initcheck", "uninitialised", "uninitialised_read.cu:8"),
    ],
)
def test_a_fault_is_found_with_its_line(name: str, tool: str, kind: str, line: str):
    argv = [sys.executable, "-m", "be_runtime", "check", "--json", "--tools", tool, str(PROGRAM), str(KERNELS[name])]
    done = subprocess.run(
        argv, env=environment(JAX_PLATFORMS=None), capture_output=True, text=True, timeout=120, check=False
    )
    answer = json.loads(done.stdout)
    found = [each for each in answer["findings"] if each["kind"] == kind]
    assert done.returncode == 1
    assert found, answer
    assert (found[0]["kernel"], found[0]["source"]) == (f"{name}.{name}", line)
    assert found[0]["caller"].endswith("program.py:20 in main")
