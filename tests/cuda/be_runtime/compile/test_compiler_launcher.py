"""Real compiler caches before nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime
from tests.support import cuda
from tests.support.launchers import LAUNCHERS, compiler_cache


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_compiler_cache_answers_for_nvcc(
    launcher: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    source = cuda.source("arithmetic")
    with compiler_cache(launcher, tmp_path / launcher, monkeypatch) as hits:
        be_runtime.load_cuda_inline("launched", source, auto_register=False)
        assert hits() == 0
        be_runtime.set_cache_dir(tmp_path / "empty")
        be_runtime.load_cuda_inline("launched", source, auto_register=False)
        assert hits() == 2, "the source and the handler"
        be_runtime.load_cuda_inline("launched", source, use_fast_math=True, auto_register=False)
        assert hits() == 2, "another flag compiles again"
