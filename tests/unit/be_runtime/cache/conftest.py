"""A store in a temporary folder, a header, and a build that counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key


def tick(path: Path) -> None:
    """Wait until the file system's clock is past a file's change time, as it is when a person edits and then runs."""
    probe = path.with_name("clock-probe")
    while True:
        probe.write_bytes(b"")
        now_ns = probe.stat().st_ctime_ns
        probe.unlink()
        if now_ns > path.stat().st_ctime_ns:
            return
        time.sleep(0.001)


@dataclass
class CountingBuild:
    """A build whose output is its headers' content: a stale hit shows as old content."""

    headers: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
    calls: int = 0
    staged: list[Path] = field(default_factory=list)

    def __call__(self, staging: Path) -> BuildOutput:
        """Write the output."""
        self.calls += 1
        self.staged.append(staging)
        (staging / "scratch.o").write_bytes(b"thrown away")
        (staging / "m.so").write_bytes(b"|".join(header.read_bytes() for header in self.headers))
        return BuildOutput(outputs=("m.so",), dependencies=self.headers, absent=self.absent)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def key() -> CacheKey:
    return make_key("module", ("name", "add"), ("flags", ("-O2",)))


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "x.h"
    path.write_bytes(b"one")
    tick(path)
    return path


@pytest.fixture
def build(header: Path) -> CountingBuild:
    return CountingBuild(headers=(header,))


@pytest.fixture
def edit() -> Callable[[Path, bytes], None]:
    def change(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        tick(path)

    return change


@pytest.fixture
def tree() -> Callable[[Path], list[str]]:
    """Every file below a folder, relative to it."""

    def files(folder: Path) -> list[str]:
        return sorted(os.path.relpath(path, folder) for path in folder.rglob("*") if not path.is_dir())

    return files
