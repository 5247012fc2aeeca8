"""Every Python block of the pages about CUDA runs on a device, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page


@pytest.mark.parametrize("page", ["docs/index.md", "docs/tutorial-cuda.md", "docs/compiler-options.md"])
def test_page_runs(page: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with_cpp = page != "docs/index.md"  # its part for laptops calls C++, which takes arrays of the CPU
    assert run_page(page, with_cpp=with_cpp) > 0
    assert tmp_cache.is_dir()
