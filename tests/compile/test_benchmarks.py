"""The benchmarks run; what they measure on a busy machine is nobody's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "benchmarks", *arguments)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_quick_run_reports_figures_and_no_paths(tmp_path: Path):
    out = tmp_path / "result.json"
    done = _benchmarks("--quick", "--repeat", "1", "--rows", "imports,cold_cpp", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "cold load_cpp_inline" in done.stdout
    text = out.read_text()
    rows = [figure["row"] for figure in json.loads(text)["figures"]]
    assert rows == ["imports"] * 3 + ["cold_cpp"] * 2
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


@pytest.mark.parametrize(("argument", "message"), [("--rows=nothing", "no row nothing"), ("--repeat=0", "above 0")])
def test_bad_arguments(argument: str, message: str):
    done = _benchmarks(argument)
    assert done.returncode == 2
    assert message in done.stderr
