"""A bundle is there as a whole, whoever else writes it, and whenever a process is killed."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.bundle.index import CodeImage, Index
from be_runtime.bundle.mapped_images import open_folder
from be_runtime.bundle.write import write_bundle
from be_runtime.errors import ArgumentError

NONE = Index("x86_64", {})
pytestmark = [  # JAX may be there, by other tests; the children do not use it
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def write(folder: Path, number: int) -> None:
    images = {hashlib.sha256(data).hexdigest(): data for data in (b"shared", b"%d" % number * 200_000)}
    rows = {key: CodeImage("library", "cpu", len(data)) for key, data in images.items()}
    write_bundle(folder, Index("x86_64", rows), images)


def write_slowly(folder: Path, number: int) -> None:
    """Write again and again, with a pause at each step that others can meet."""
    sys.addaudithook(lambda event, _args: time.sleep(0.002 if event == "os.rename" else 0))
    for _ in range(20):
        write(folder, number)


def write_until(folder: Path, last: int) -> None:
    """Write, and be killed before a call of the system."""
    calls = itertools.count(1)
    sys.addaudithook(lambda _event, _args: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == last else None)
    write(folder, last)


def exit_codes(function: Callable[[Path, int], None], folder: Path, numbers: range) -> list[int | None]:
    """Run a function in processes at once, one a number, and return how they ended; the bundle is whole then."""
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=function, args=(folder, number)) for number in numbers]
    for each in running:
        each.start()
    for each in running:
        each.join()
    bundle = open_folder(folder)
    assert bundle is not None
    for digest in bundle.table.images:
        bundle.image(digest)
    return [each.exitcode for each in running]


def test_processes_that_write_one_bundle_wait_for_each_other(tmp_path: Path):
    assert exit_codes(write_slowly, tmp_path / "_kernels", range(3)) == [0, 0, 0]
    assert len(os.listdir(tmp_path / "_kernels" / "images")) == 2


def test_a_killed_build_leaves_the_bundle_whole_and_nothing_that_the_next_one_does_not_remove(tmp_path: Path):
    folder = tmp_path / "_kernels"
    write(folder, 0)
    number = 1
    while exit_codes(write_until, folder, range(number, number + 1)) != [0]:
        number += 1
    assert number > 10
    assert os.listdir(tmp_path) == ["_kernels"]
    assert len(os.listdir(folder / "images")) == 2


def test_every_user_can_read_it_and_files_of_another_build_go(tmp_path: Path):
    folder = tmp_path / "_kernels"
    before = os.umask(0o077)
    try:
        write_bundle(folder, NONE, {}, {"__init__.py": "x = 1\n"})
        assert (folder / "__init__.py").read_text() == "x = 1\n"
        write(folder, 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))} == {0o755, 0o644}
    assert sorted(os.listdir(folder)) == ["images", "index.json"]


@pytest.mark.parametrize("name", ["notes.txt", "index.html"])
def test_a_folder_or_a_file_of_somebody_else_is_kept(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ArgumentError, match="holds something else"):
        write_bundle(tmp_path, NONE, {})
    assert sorted(os.listdir(tmp_path)) == sorted([name, "index.json"])
    with pytest.raises(ArgumentError, match="can't be written: Not a directory"):
        write_bundle(tmp_path / name, NONE, {})
