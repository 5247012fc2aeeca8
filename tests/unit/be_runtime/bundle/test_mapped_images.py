"""Which images are mapped: those that are what their hash says, for this machine, and that nobody else can change."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from pathlib import Path

import pytest

from be_runtime.bundle.baseline import check_baseline, require_baseline
from be_runtime.bundle.index import CodeImage, Index
from be_runtime.bundle.mapped_images import Bundle, map_bytes, open_folder, open_trusted
from be_runtime.bundle.write import write_bundle
from be_runtime.errors import ArgumentError, LoadError
from tests.support.accounts import STRANGER, needs_root, open_place

__all__ = ["open_place"]  # a fixture

DATA = b"not a library"
DIGEST = hashlib.sha256(DATA).hexdigest()


def written(folder: Path, *, machine: str = platform.machine(), baseline: str = "") -> Bundle:
    """A bundle of one image, which no loader would take."""
    index = Index(machine, {DIGEST: CodeImage("library", "cpu", len(DATA), (), baseline)})
    write_bundle(folder, index, {DIGEST: DATA})
    bundle = open_folder(folder)
    assert bundle is not None
    return bundle


def test_a_flipped_byte_is_refused_before_anything_is_mapped(tmp_path: Path):
    bundle = written(tmp_path / "b")
    bundle.path(DIGEST).write_bytes(b"not a lib\0ary")
    with pytest.raises(LoadError, match="other bytes than when it was built"):
        bundle.library(DIGEST)


@pytest.mark.parametrize("other", [DATA[:-1], DATA[::-1]], ids=["shorter", "of the same size"])
def test_another_file_in_a_package_that_is_imported_anyway_is_refused(tmp_path: Path, other: bytes):
    bundle = written(tmp_path / "package" / "b")._replace(vouched=tmp_path / "package")
    bundle.path(DIGEST).write_bytes(other)
    with pytest.raises(LoadError, match="other bytes than when it was built"):
        bundle.library(DIGEST)


def test_a_missing_image_is_damage(tmp_path: Path):
    bundle = written(tmp_path / "b")
    bundle.path(DIGEST).unlink()
    with pytest.raises(LoadError, match=f"images/{DIGEST}.so can't be read"):
        bundle.library(DIGEST)


def test_code_for_another_machine_names_both(tmp_path: Path):
    with pytest.raises(LoadError, match=f"was built for s390x, and this machine is {platform.machine()}"):
        written(tmp_path / "b", machine="s390x").library(DIGEST)


def test_code_that_this_cpu_cannot_run_names_what_it_lacks(tmp_path: Path):
    info = tmp_path / "cpuinfo"
    info.write_text("flags\t\t: fpu sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx\n")
    require_baseline("x86-64-v2", "it", info)
    with pytest.raises(LoadError, match="level x86-64-v3, and this one lacks abm, avx2, bmi1"):
        require_baseline("x86-64-v3", "it", info)


def test_a_level_that_does_not_exist_is_refused():
    assert check_baseline("x86-64-v4", "x86_64") == "x86-64-v4"
    for value, machine in (("x86-64-v5", "x86_64"), ("x86-64-v2", "aarch64"), (3, "x86_64")):
        with pytest.raises(ArgumentError, match="is not a level"):
            check_baseline(value, machine)


@pytest.mark.parametrize("level", ["", "images", "images/*"])
def test_what_others_may_write_is_not_mapped(tmp_path: Path, level: str):
    bundle = written(tmp_path / "b")
    (place,) = (tmp_path / "b").glob(level) if level else (tmp_path / "b",)
    place.chmod(0o777)
    with pytest.raises(LoadError, match=r"can be written by other users \(mode 777\)"):
        bundle.library(DIGEST)


@pytest.mark.parametrize("level", ["", "index.json", ".."])
def test_an_index_that_others_may_write_is_not_believed(tmp_path: Path, level: str):
    folder = tmp_path / "packages" / "b"
    written(folder)
    assert open_trusted(folder) is not None
    (folder / level).chmod(0o666 if level.endswith("json") else 0o777)
    with pytest.raises(LoadError, match="can be written by other users"):
        open_trusted(folder)
    if level == "..":  # which is as safe as the package that is imported anyway
        assert open_trusted(folder, vouched=tmp_path / "packages") is not None


@needs_root
def test_what_another_user_owns_is_not_mapped_unless_their_package_is_run_anyway(tmp_path: Path):
    folder = tmp_path / "package" / "_kernels"
    folder.parent.mkdir()
    written(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    bundle = open_folder(folder)
    assert bundle is not None
    with pytest.raises(LoadError, match="belongs to another user"):
        bundle.library(DIGEST)
    os.chown(folder.parent, STRANGER, STRANGER)
    with pytest.raises(LoadError, match="can't be loaded: "):
        bundle._replace(vouched=folder.parent).library(DIGEST)


def test_bytes_that_are_no_library_leave_nothing_open():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(LoadError, match="can't be loaded"):
        map_bytes(DATA, DIGEST, "here")
    assert len(os.listdir("/proc/self/fd")) == len(before)


@needs_root
def test_without_files_in_memory_no_code_is_written_where_others_could_replace_it(
    tmp_path: Path, open_place: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_args: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LoadError, match="can't be loaded"):
        map_bytes(DATA, DIGEST, "here")
    os.chown(tmp_path, STRANGER, STRANGER)
    with pytest.raises(LoadError, match=r"code is not written to .* belongs to another user"):
        map_bytes(DATA, DIGEST, "here")
    assert os.listdir(tmp_path) == []
    (open_place / "mine").mkdir()
    open_place.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", f"{open_place}/mine")
    with pytest.raises(LoadError, match=f"which can't be trusted: {open_place} can be written by other users"):
        map_bytes(DATA, DIGEST, "here")


def test_a_folder_without_an_index_is_no_bundle(tmp_path: Path):
    assert open_folder(tmp_path) is None
    assert open_folder(tmp_path / "nowhere") is None
    assert open_trusted(tmp_path / "nowhere") is None
