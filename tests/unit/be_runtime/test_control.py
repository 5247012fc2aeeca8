"""What the functions that control the process print and offer."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime


def test_the_functions_are_also_those_of_config():
    assert be_runtime.config.set_backend is be_runtime.set_backend
    assert be_runtime.config.get_backend("tpu") is None


def test_diagnostics_say_compilers_cache_and_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    be_runtime.print_diagnostics()
    printed = capsys.readouterr().out
    assert "C++ compiler" in printed
    assert f"cache: {be_runtime.get_cache_dir()}, 0 entries" in printed
    assert "registered targets: none" in printed
