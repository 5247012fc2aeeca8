"""The program `be-runtime`: it imports what `python -m be_runtime` imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
PROGRAM = "import sys; from be_runtime.cli.main import main; sys.path.remove(''); sys.exit(main())"


def test_it_finds_modules_of_the_working_folder(tmp_path: Path):
    (tmp_path / "empty.py").write_text("")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = {
        way: subprocess.run(
            [sys.executable, *way, "stubs", "empty"],
            cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        ).stderr
        for way in (("-c", PROGRAM), ("-m", "be_runtime"))
    }  # fmt: skip
    assert len({*asked.values()}) == 1, asked
    assert "empty has no kernels among its names" in asked["-m", "be_runtime"]
