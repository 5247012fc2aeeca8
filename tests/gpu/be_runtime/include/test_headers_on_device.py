"""The headers in kernels: programs built by nvcc alone run on the device and hold their expectations."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import requirements

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = Path(__file__).parent / "programs"
FOLDERS = (
    ROOT / "be_runtime" / "include",
    PROGRAMS,
    ROOT / "tests" / "compile" / "be_runtime" / "include" / "programs",
)


@pytest.mark.parametrize("name", ["tensor", "cuda_common", "device_check", "dispatch", "errors"])
def test_program(name: str, tmp_path: Path):
    program = tmp_path / name
    nvcc = requirements.nvcc()
    assert nvcc is not None
    includes = [f"-I{folder}" for folder in FOLDERS]
    source = PROGRAMS / f"{name}.cu"
    command = (nvcc, "-std=c++17", "-O3", "-arch=native", *includes, str(source), "-o", str(program))
    for step in (command, (str(program),)):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
