"""A bundle is there as a whole, and what a killed process left goes away."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from be_runtime.bundle.index import Index
from be_runtime.bundle.write import write_bundle
from be_runtime.errors import ArgumentError


def test_the_remains_of_killed_builds_are_removed_and_those_of_others_stay(tmp_path: Path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"._kernels.{ended.pid}", f"._kernels.{ended.pid}.old", f"._kernels.{os.getppid()}", "._kernels.mine"]
    for name in names:
        (tmp_path / name / "images").mkdir(parents=True)
    write_bundle(tmp_path / "_kernels", Index("x86_64", {}), {}, {"__init__.py": "x = 1\n"})
    assert sorted(os.listdir(tmp_path)) == sorted([*names[2:], "_kernels"])
    assert (tmp_path / "_kernels" / "__init__.py").read_text() == "x = 1\n"


def test_a_folder_of_somebody_else_is_kept(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="holds something else"):
        write_bundle(tmp_path, Index("x86_64", {}), {})
    assert os.listdir(tmp_path) == ["notes.txt"]
