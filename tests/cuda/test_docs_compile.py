"""Every CUDA source of the documentation compiles, also where there is no device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import build_cuda_sources
from tests.support.runtime import environment, run_python


@pytest.mark.parametrize("page", ["docs/tutorial-cuda.md", "docs/compiler-options.md", "docs/index.md"])
def test_sources_compile_for_hopper(page: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert build_cuda_sources(page, "sm_90") > 0
    assert tmp_cache.is_dir()


def test_the_readme_runs_where_there_is_no_device(tmp_cache: Path):
    """All of its blocks, one after the other."""
    code = "from tests.support.docs import run_page; print(run_page('README.md'))"
    hidden = environment(CUDA_VISIBLE_DEVICES="", BE_COMPUTE_CAPABILITIES=None, JAX_PLATFORMS=None)
    assert run_python(code, env=hidden).stdout.split() == ["2"]
