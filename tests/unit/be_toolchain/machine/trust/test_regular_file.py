"""The reader of files that somebody else may have put there: it waits for nothing, and reads no more than it may."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from be_toolchain.machine.trust.folder_trust import distrust_entry
from be_toolchain.machine.trust.regular_file import NotRegularError, open_regular, read_part, read_regular
from tests.support.accounts import STRANGER, needs_root
from tests.support.hostile_files import KINDS, plant, refused_at_once

LIMIT = 1 << 20


def test_a_file_is_read_as_it_is(tmp_path: Path):
    path = tmp_path / "a"
    for data in (b"", b"x" * LIMIT):
        path.write_bytes(data)
        assert read_regular(path, LIMIT) == data
    assert read_regular("/proc/self/comm", LIMIT).strip()  # whose size is 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, kind: str):
    plant(tmp_path / "a", kind)
    wanted = {"pipe": "it is not a regular file", "gigabytes": "it is larger than 1 MiB", "folder": "Is a directory"}
    with refused_at_once(), pytest.raises(OSError, match=wanted[kind]) as caught:
        read_regular(tmp_path / "a", LIMIT)
    assert caught.value.filename == str(tmp_path / "a")
    assert isinstance(caught.value, NotRegularError) == (kind == "pipe")


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a"
    path.write_bytes(b"x" * (LIMIT + 1))
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result((*real(descriptor)[:6], 1, 0, 0, 0)))
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_regular(path, LIMIT)


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "/".join(["x" * 200] * 30), "\ud800"])
def test_what_can_not_be_a_path_is_an_error_of_the_system(path: str):
    with pytest.raises(OSError, match=r"not a path|too long"):
        read_regular(path)


def test_a_link_is_followed_where_people_make_some(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "b") == b"x"
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(tmp_path / "b", follows_link=False)


def test_a_distrusted_file_is_not_read(tmp_path: Path):
    path = plant(tmp_path / "a", "gigabytes")
    path.chmod(0o666)
    before = os.listdir("/proc/self/fd")
    with refused_at_once(), pytest.raises(PermissionError, match="it can be written by other users"):
        open_regular(path, judge=distrust_entry)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@needs_root
def test_an_owner_is_judged_before_the_kind(tmp_path: Path):
    path = plant(tmp_path / "a", "pipe")
    os.chown(path, STRANGER, STRANGER)
    with refused_at_once(), pytest.raises(PermissionError, match="it belongs to another user"):
        open_regular(path, judge=distrust_entry)


def test_a_part_of_a_zip_has_the_same_limit(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small", b"x")
        archive.writestr("large", b"\0" * (LIMIT + 1))
    root = zipfile.Path(tmp_path / "a.zip")
    assert read_part(root / "small", LIMIT) == b"x"
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_part(root / "large", LIMIT)
