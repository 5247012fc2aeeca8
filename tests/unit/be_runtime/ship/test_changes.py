"""What a package's kernels were made from, and what has changed since."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_runtime.ship.changes import MISSING, changed_source, record_sources


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "a.cc").write_text("a")
    (tmp_path / "kernels.toml").write_text("x = 1")
    return tmp_path


def test_the_declaration_is_a_source_and_files_elsewhere_are_none(root: Path):
    assert sorted(record_sources(root, [root / "ops" / "a.cc", Path(os.__file__)])) == ["kernels.toml", "ops/a.cc"]


def test_what_changed_appeared_or_was_added_is_named_and_what_is_gone_is_not(root: Path):
    sources = record_sources(root, [root / "ops" / "a.cc"]) | {"ops/a.h": MISSING, "ops/": ".cc .cu"}
    assert changed_source(root, sources) == changed_source(None, sources) == ""
    for name in ("ops/a.cc", "ops/a.h", "ops/b.cu", "kernels.toml"):
        before = (root / name).read_text() if (root / name).exists() else None
        (root / name).write_text("edited")
        assert changed_source(root, sources) == name
        (root / name).unlink()
        assert changed_source(root, sources) == ""
        if before is not None:
            (root / name).write_text(before)


def test_a_pipe_in_the_place_of_a_source_does_not_block(root: Path):
    sources = record_sources(root, [root / "ops" / "a.cc"])
    (root / "ops" / "a.cc").unlink()
    os.mkfifo(root / "ops" / "a.cc")
    assert changed_source(root, sources) == ""
