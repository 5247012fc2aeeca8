"""Which checks of a file's hash are remembered: of a file that can't have changed since, in a folder of one's own."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime.bundle.whole_files import KEPT, is_whole
from tests.support.accounts import STRANGER, needs_root

DATA = b"some code"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was written long ago, as far as its change time tells."""
    path = tmp_path / "image.so"
    path.write_bytes(DATA)
    later = time.time_ns() + 10**10
    monkeypatch.setattr(time, "time_ns", lambda: later)
    return path


def check(path: Path, memory: Path, digest: str = DIGEST, size: int = len(DATA)) -> bool:
    return is_whole(path, digest, size, str(memory))


def hashes(path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a check reads the file."""
    read: list[Any] = []
    real = hashlib.file_digest

    def digest(file: Any, name: str) -> Any:
        read.append(file)
        return real(file, name)

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", digest)
        assert check(path, memory)
    return bool(read)


def test_a_file_is_hashed_once(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    memory = tmp_path / "cache" / "images"
    assert [hashes(image, memory, monkeypatch) for _ in range(3)] == [True, False, False]
    assert [oct(place.stat().st_mode & 0o777) for place in (memory.parent, memory)] == ["0o700", "0o700"]


@pytest.mark.parametrize("edit", ["same size, same time", "another path", "another file of the same bytes"])
def test_whatever_may_have_changed_is_hashed_again(
    image: Path, tmp_path: Path, edit: str, monkeypatch: pytest.MonkeyPatch
):
    memory = tmp_path / "images"
    assert check(image, memory)
    before = image.stat()
    if edit == "another path":
        image = image.rename(tmp_path / "other.so")
    elif edit.startswith("another"):
        (tmp_path / "new").write_bytes(DATA)
        (tmp_path / "new").replace(image)
    else:
        with image.open("r+b") as file:
            file.write(b"S")
        os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert not check(image, memory)
        return
    assert hashes(image, memory, monkeypatch)


def test_another_hash_or_size_than_the_promised_one_is_refused_and_not_remembered(image: Path, tmp_path: Path):
    assert not check(image, tmp_path / "images", digest="0" * 64)
    assert not check(image, tmp_path / "images", size=1)
    assert not (tmp_path / "images").exists()


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path):
    (tmp_path / "a").write_bytes(DATA)
    assert check(tmp_path / "a", tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_without_a_folder_that_can_be_written_each_process_hashes(image: Path, monkeypatch: pytest.MonkeyPatch):
    assert [hashes(image, Path("/proc/nowhere"), monkeypatch) for _ in range(2)] == [True, True]
    assert is_whole(image, DIGEST, len(DATA), "")


@pytest.mark.parametrize("change", ["open", "link", pytest.param("owner", marks=needs_root)])
def test_what_others_could_have_remembered_is_not_believed(
    image: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
):
    memory = tmp_path / "images"
    assert check(image, memory)
    if change == "open":
        memory.chmod(0o777)
    elif change == "link":
        memory.rename(tmp_path / "real")
        memory.symlink_to("real")
    else:
        os.chown(memory, STRANGER, STRANGER)
    assert hashes(image, memory, monkeypatch)


def test_the_oldest_checks_are_forgotten(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    memory = tmp_path / "images"
    memory.mkdir(mode=0o700)
    for number in range(KEPT + 5):
        (memory / str(number)).touch()
        os.utime(memory / str(number), (number, number))
    assert check(image, memory)
    assert len(os.listdir(memory)) == KEPT
    assert not hashes(image, memory, monkeypatch)
