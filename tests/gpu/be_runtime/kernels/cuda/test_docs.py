"""The page about kernels runs on a device, and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page

pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/kernels.md") > 5
