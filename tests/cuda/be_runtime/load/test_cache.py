"""What makes nvcc run again, and what a warm load starts: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda.built import WARM_LOAD, built
from tests.support import requirements, runtime
from tests.support.cuda import run_json, source


def test_a_warm_load_in_a_new_process_starts_nothing(tmp_path: Path):
    (tmp_path / "once.cu").write_text(source("half"))
    cold, warm = (run_json(WARM_LOAD, str(tmp_path / "once.cu"), JAX_PLATFORMS="cpu") for _ in range(2))
    assert any("ninja" in str(event) for event in cold["started"])
    assert warm == {**cold, "started": [], "backend": False}
    assert cold["backend"] is False


@pytest.mark.full
def test_another_nvcc_has_entries_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "calls"
    shim = runtime.script(tmp_path / "nvcc", f"echo called >> {log}", f'exec {requirements.nvcc()} "$@"')
    monkeypatch.setenv("BE_NVCC", str(shim))
    first = built("half").path
    assert log.exists()
    log.unlink()
    assert built("half").path == first
    assert not log.exists()
