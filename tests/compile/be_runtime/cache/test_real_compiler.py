"""The cache with a real compiler, its depfile and libraries that are loaded."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Entry, Store, make_key, shadowing_paths


class Project:
    """A library whose one function returns a header's number."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "cache")
        self.source = root / "f.cc"
        self.header = root / "include" / "number.h"
        self.first = root / "first"
        self.first.mkdir()
        self.header.parent.mkdir()
        self.source.write_text('#include <cmath>\n#include "number.h"\nextern "C" int f() { return NUMBER; }\n')
        self.builds = 0
        self.set_number(1)

    def set_number(self, number: int, header: Path | None = None) -> None:
        """Edit the header, and let the clock tick."""
        header = header or self.header
        header.write_text(f"#define NUMBER {number}\n")
        time.sleep(0.02)

    def load(self, number: int | None = None) -> Entry:
        """The entry; its library returns the number given."""
        entry = self.store.get_or_build(self.key(), self.build)
        if number is not None:
            assert self.call(entry) == number
        return entry

    def key(self) -> CacheKey:
        """What is known before the build."""
        return make_key("module", ("name", "f"), ("source", self.source.read_text()))

    def call(self, entry: Entry) -> int:
        """Load the library and call it."""
        return int(ctypes.CDLL(str(entry.output("f.so"))).f())

    def build(self, staging: Path) -> BuildOutput:
        """Compile, and read the depfile."""
        self.builds += 1
        compiler = shutil.which(os.environ.get("CXX", "c++")) or "c++"
        folders = (self.first, self.header.parent)
        flags = [flag for folder in folders for flag in ("-I", str(folder))]
        command = [compiler, "-shared", "-fPIC", "-MD", "-MF", "f.d", "-o", "f.so", *flags, str(self.source)]
        subprocess.run(command, check=True, cwd=staging, timeout=120)
        words = (staging / "f.d").read_text().replace("\\\n", " ").split()[1:]
        dependencies = tuple(Path(word) for word in words)
        return BuildOutput(outputs=("f.so",), dependencies=dependencies, absent=shadowing_paths(dependencies, folders))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_headers_are_followed_through_the_depfile(project: Project):
    first = project.load(1)
    assert first.built
    assert not project.load(1).built
    paths = set(first.manifest.dependencies.paths)
    assert {str(project.source), str(project.header)} <= paths
    assert any(path.endswith("/cmath") for path in paths)
    project.set_number(2)
    assert project.load(2).reason == f"{project.header} changed"


def test_edit_and_reload_in_one_process_and_back_again(project: Project):
    for number, builds in ((1, 1), (2, 2), (1, 2), (2, 2), (3, 3), (1, 3)):
        project.set_number(number)
        project.load(number)
        assert project.builds == builds


def test_a_header_that_shadows_another_rebuilds(project: Project):
    project.load(1)
    project.set_number(7, project.first / "number.h")
    project.load(7)
    (project.first / "number.h").unlink()
    project.load(1)
    assert project.builds == 2, "the first build is valid again"


@pytest.mark.parametrize("after", ["clear", "prune", "damage"])
def test_a_loaded_library_outlives_its_entry(project: Project, after: str):
    entry = project.load()
    loaded = ctypes.CDLL(str(entry.output("f.so")))
    actions: dict[str, Callable[[], object]] = {
        "clear": project.store.clear,
        "prune": lambda: project.store.prune(max_age_days=0),
        "damage": project.load,
    }
    if after == "damage":
        (entry.path / "manifest.json").unlink()
    actions[after]()
    assert not entry.path.exists()
    assert loaded.f() == 1
    project.load(1)


def test_a_build_that_fails_can_be_repaired(project: Project):
    project.set_number(1)
    project.header.write_text("#error not now\n")
    with pytest.raises(subprocess.CalledProcessError):
        project.load()
    project.set_number(5)
    project.load(5)
