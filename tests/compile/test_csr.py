"""examples/csr.py with its C++ kernels: tuned in one run, and not in the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import run_program


def test_the_second_run_times_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    arguments = ("--rows", "1000", "--entries", "4", "40")
    status, first = run_program("csr", *arguments, cwd=tmp_path)
    assert status == 0
    assert first["tunings"] == 2
    assert all(size["tuned_us"] > 0 for size in first["sizes"].values())
    status, second = run_program("csr", *arguments, cwd=tmp_path)
    assert status == 0
    assert second["tunings"] == 0
    configs = [{entries: size["config"] for entries, size in each["sizes"].items()} for each in (first, second)]
    assert configs[0] == configs[1]
