"""Every Python block of the pages that need no GPU runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page

PAGES = (
    "README.md",
    "docs/arg-spec.md",
    "docs/building.md",
    "docs/caching.md",
    "docs/cpp-api.md",
    "docs/errors.md",
    "docs/settings.md",
    "docs/tutorial-cpp.md",
)


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page, with_cuda=False) > 0
