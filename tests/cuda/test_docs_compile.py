"""Every CUDA source of the documentation compiles, also where there is no device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import build_cuda_sources


@pytest.mark.parametrize("page", ["docs/tutorial-cuda.md", "docs/compiler-options.md", "README.md"])
def test_sources_compile_for_hopper(page: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert build_cuda_sources(page, "sm_90") > 0
    assert tmp_cache.is_dir()
