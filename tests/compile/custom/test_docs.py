"""The pages about Numba on the CPU and about operations run, and print what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page


@pytest.mark.parametrize("page", ["docs/numba-cpu.md", "docs/custom-kernels.md"])
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if page == "docs/numba-cpu.md":
        pytest.importorskip("numba")
    monkeypatch.chdir(tmp_path)
    assert run_page(page) > 3
