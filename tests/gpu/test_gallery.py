"""The pages of the gallery run with their CUDA kernels."""

from __future__ import annotations

import pytest

from benchmarks.gallery import PAGES
from benchmarks.gallery.measure import operations
from tests.support.gallery import run_short


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_and_times_its_kernel_beside_plain_jax(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    records = [each for operation in operations(run_short(name)["result"]) for each in operation["records"]]
    assert "cuda" in {each["backend"] for each in records}
    assert [each["error"] for each in records if each["error"]] == []
