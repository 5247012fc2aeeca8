"""Real compiler caches before the compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime
from tests.support.launchers import LAUNCHERS, compiler_cache

SOURCE = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { out.data_ptr<float>()[0] = 1.0f; }\n'


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_compiler_cache_answers_where_ours_is_empty(
    launcher: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    with compiler_cache(launcher, tmp_path / launcher, monkeypatch) as hits:
        first = be_runtime.load_cpp_inline("launched", SOURCE, auto_register=False)
        assert hits() == 0
        be_runtime.set_cache_dir(tmp_path / "empty")
        again = be_runtime.load_cpp_inline("launched", SOURCE, auto_register=False)
        assert hits() == 2, "the source and the handler"
        be_runtime.load_cpp_inline("launched", SOURCE.replace("1.0f", "2.0f"), auto_register=False)
        assert hits() == 2, "another source is compiled"
    assert again.path != first.path
    assert again.path.read_bytes() == first.path.read_bytes()
