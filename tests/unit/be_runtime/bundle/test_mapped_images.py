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
OTHERS = "can be written by other users"


def written(folder: Path, machine: str = platform.machine()) -> Bundle:
    """A bundle of one image, which no loader would take."""
    write_bundle(folder, Index(machine, {DIGEST: CodeImage("library", "cpu", len(DATA))}), {DIGEST: DATA})
    bundle = open_folder(folder)
    assert bundle is not None
    return bundle


def require_refused(bundle: Bundle, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        bundle.library(DIGEST)


@pytest.mark.parametrize("other", [b"not a lib\0ary", DATA[:-1], DATA[::-1]])
def test_another_file_is_refused_also_in_a_package_that_is_imported_anyway(tmp_path: Path, other: bytes):
    bundle = written(tmp_path / "package" / "b")
    bundle.path(DIGEST).write_bytes(other)
    require_refused(bundle, "other bytes than when it was built")
    require_refused(bundle._replace(vouched=tmp_path / "package"), "other bytes than when it was built")
    bundle.path(DIGEST).unlink()
    require_refused(bundle, f"images/{DIGEST}.so can't be read")


def test_code_that_this_machine_cannot_run_names_what_it_lacks(tmp_path: Path):
    require_refused(written(tmp_path, "s390x"), f"was built for s390x, and this machine is {platform.machine()}")
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


@pytest.mark.parametrize("level", ["", "images", f"images/{DIGEST}.so"])
def test_what_others_may_write_is_not_mapped(tmp_path: Path, level: str):
    bundle = written(tmp_path / "b")
    (tmp_path / "b" / level).chmod(0o777)
    require_refused(bundle, rf"{OTHERS} \(mode 777\)")


@pytest.mark.parametrize("level", ["", "index.json", ".."])
def test_an_index_that_others_may_write_is_not_believed(tmp_path: Path, level: str):
    folder = tmp_path / "packages" / "b"
    written(folder)
    assert open_trusted(folder) is not None
    (folder / level).chmod(0o666 if level.endswith("json") else 0o777)
    with pytest.raises(LoadError, match=OTHERS):
        open_trusted(folder)
    if level == "..":  # which is as safe as the package that is imported anyway
        assert open_trusted(folder, vouched=tmp_path / "packages") is not None


@needs_root
def test_what_another_user_owns_is_not_mapped_unless_their_package_is_run_anyway(tmp_path: Path):
    folder = tmp_path / "package" / "_kernels"
    folder.parent.mkdir()
    bundle = written(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    require_refused(bundle, "belongs to another user")
    os.chown(folder.parent, STRANGER, STRANGER)
    require_refused(bundle._replace(vouched=folder.parent), "can't be loaded: ")


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

    def require(words: str, temporary: str) -> None:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        with pytest.raises(LoadError, match=words):
            map_bytes(DATA, DIGEST, "here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    require("can't be loaded", str(tmp_path))
    os.chown(tmp_path, STRANGER, STRANGER)
    require(r"code is not written to .* belongs to another user", str(tmp_path))
    assert os.listdir(tmp_path) == []
    (open_place / "mine").mkdir()
    open_place.chmod(0o777)
    require(f"which can't be trusted: {open_place} {OTHERS}", f"{open_place}/mine")


def test_a_folder_without_an_index_is_no_bundle(tmp_path: Path):
    assert open_folder(tmp_path) is open_folder(tmp_path / "nowhere") is open_trusted(tmp_path / "nowhere") is None
