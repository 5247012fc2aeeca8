"""A store in a temporary folder, and what its tests build."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.store.cache import BuildOutput, Cache, Entry
from be_runtime.store.keys import make_key


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


Build = Callable[[Path], BuildOutput]


class Bench:
    """A store, the key of a module, and a header whose content a build copies to its output: what is stale shows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.header, self.builds = folder, folder / "x.h", 0
        self.store, self.base = Cache(folder / "cache"), folder / "cache" / "kernels-v1"
        self.key = make_key("module", ("name", "add"), ("flags", ("-O2",)))
        self.edit(b"one")

    def edit(self, content: bytes) -> None:
        """Write the header, and wait until the file system's clock is past that, as when a person edits and runs."""
        self.header.write_bytes(content)
        probe = self.folder / "clock-probe"
        probe.touch()
        while probe.stat().st_ctime_ns <= self.header.stat().st_ctime_ns:
            probe.touch()
        probe.unlink()

    def build(self, staging: Path, **fields: Any) -> BuildOutput:
        """Copy the header; fields are those of the result that differ."""
        self.builds += 1
        (staging / "scratch.o").write_bytes(b"thrown away")
        (staging / "m.so").write_bytes(self.header.read_bytes())
        return BuildOutput(outputs=("m.so",), dependencies=(self.header,))._replace(**fields)

    def make(self, build: Build | None = None, **options: Any) -> Entry:
        """Return the entry, built if that is needed."""
        return self.store.get_or_build(self.key, build or self.build, **options)

    def hit(self) -> Entry:
        """Return the entry, which is there."""
        found = self.store.get(self.key)
        assert found is not None
        return found

    def is_missing(self) -> bool:
        """Return whether a load would build."""
        return self.store.get(self.key) is None

    def staged(self) -> list[str]:
        """List what builds have left in the making."""
        return os.listdir(self.base / "staging")


def tree(folder: Path) -> list[str]:
    """List every file below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
