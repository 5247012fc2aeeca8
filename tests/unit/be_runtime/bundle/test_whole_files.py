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


class Checks:
    """Checks of a file that was written long ago, as far as its change time tells, and where they are remembered."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image, self.hashed = folder / "image.so", 0
        self.memory = folder / "cache" / "images"
        self.image.write_bytes(DATA)
        later, real = time.time_ns() + 10**10, hashlib.file_digest

        def count(file: Any, name: str) -> Any:
            self.hashed += 1
            return real(file, name)

        monkeypatch.setattr(hashlib, "file_digest", count)
        monkeypatch.setattr(time, "time_ns", lambda: later)

    def check(self, digest: str = DIGEST, size: int = len(DATA)) -> bool:
        return is_whole(self.image, digest, size, str(self.memory))

    def hashes(self) -> bool:
        """Return whether a check, which finds the file whole, reads it."""
        before = self.hashed
        assert self.check()
        return self.hashed > before


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(tmp_path, monkeypatch)


def test_a_file_is_hashed_once(checks: Checks):
    assert [checks.hashes() for _ in range(3)] == [True, False, False]
    places = (checks.memory.parent, checks.memory)
    assert [oct(place.stat().st_mode & 0o777) for place in places] == ["0o700", "0o700"]


@pytest.mark.parametrize("edit", ["same size and time", "another path", "another file of the same bytes"])
def test_whatever_may_have_changed_is_hashed_again(checks: Checks, tmp_path: Path, edit: str):
    assert checks.check()
    before = checks.image.stat()
    if edit == "another path":
        checks.image = checks.image.rename(tmp_path / "other.so")
    elif edit.startswith("another"):
        (tmp_path / "new").write_bytes(DATA)
        (tmp_path / "new").replace(checks.image)
    else:
        checks.image.write_bytes(DATA.upper())
        os.utime(checks.image, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert not checks.check()
        return
    assert checks.hashes()


def test_what_is_refused_or_was_just_written_is_not_remembered(checks: Checks, monkeypatch: pytest.MonkeyPatch):
    assert not checks.check(digest="0" * 64)
    assert not checks.check(size=1)
    monkeypatch.setattr(time, "time_ns", lambda: checks.image.stat().st_ctime_ns)
    assert checks.check()
    assert not checks.memory.exists()


def test_without_a_folder_that_can_be_written_each_process_hashes(checks: Checks):
    checks.memory = Path("/proc/nowhere")
    assert [checks.hashes() for _ in range(2)] == [True, True]
    assert is_whole(checks.image, DIGEST, len(DATA), "")


@pytest.mark.parametrize("change", ["open", "link", pytest.param("owner", marks=needs_root)])
def test_what_others_could_have_remembered_is_not_believed(checks: Checks, tmp_path: Path, change: str):
    assert checks.check()
    if change == "open":
        checks.memory.chmod(0o777)
    elif change == "link":
        checks.memory.rename(tmp_path / "real")
        checks.memory.symlink_to(tmp_path / "real")
    else:
        os.chown(checks.memory, STRANGER, STRANGER)
    assert checks.hashes()


def test_the_oldest_checks_are_forgotten(checks: Checks):
    checks.memory.mkdir(mode=0o700, parents=True)
    for number in range(KEPT + 5):
        (checks.memory / str(number)).touch()
        os.utime(checks.memory / str(number), (number, number))
    assert checks.check()
    assert len(os.listdir(checks.memory)) == KEPT
    assert not checks.hashes()
