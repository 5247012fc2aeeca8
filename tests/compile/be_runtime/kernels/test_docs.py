"""The pages about Numba on the CPU and about operations run, and print what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page


@pytest.mark.parametrize(
    ("page", "needs"),
    [
        ("docs/numba-cpu.md", "numba"),
        ("docs/from-numba-callbacks.md", "numba"),
        ("docs/custom-kernels.md", "tests.support.warp_kernels"),
    ],
)
def test_page_runs(page: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(needs, exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    assert run_page(page) > 2
