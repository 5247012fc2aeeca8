"""Files of archives, and the folder of imported ones: what is read back, and what is not believed."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import CacheKey, make_key
from be_runtime.errors import ArgumentError, CacheError
from be_runtime.sharing.archive import Head, pack
from be_runtime.sharing.export_file import ExportWriter, read_export
from be_runtime.sharing.imported import Imported
from be_runtime.sharing.place import WantedEntry

CODE = b"\x7fELF" * 100


def archive(key: CacheKey, sign: bool = False) -> bytes:
    outputs = (("module.so", len(CODE), hashlib.sha256(CODE).hexdigest()),)
    head = Head(key.digest, "module", key.name, outputs, (), (), (), "host", 0.5)
    return pack(head, {"module.so": CODE}, seal if sign else None)


def seal(data: bytes) -> bytes:
    return hashlib.sha512(b"secret" + data).digest()


def trusts(data: bytes, signature: bytes) -> bool:
    return seal(data) == signature


@pytest.fixture
def key() -> CacheKey:
    return make_key("module", ("name", "add"))


@pytest.fixture
def wanted(key: CacheKey) -> WantedEntry:
    return WantedEntry(key, "add", lambda: False)


@pytest.fixture
def exported(tmp_path: Path, key: CacheKey) -> Path:
    path = tmp_path / "kernels.be"
    with ExportWriter(path) as file:
        file.add(key.digest, archive(key, sign=True))
        file.add(key.digest, b"another of the same entry")
    return path


def test_what_is_written_is_read(exported: Path, key: CacheKey):
    ((head, data),) = read_export(exported, trusts)
    assert (head.digest, head.name, data) == (key.digest, "add", archive(key, sign=True))


def test_every_flipped_byte_of_an_archive_is_noticed(exported: Path, key: CacheKey):
    whole = exported.read_bytes()
    begin = whole.index(archive(key, sign=True))
    for at in range(begin, begin + len(archive(key)), 97):
        broken = bytearray(whole)
        broken[at] ^= 1
        exported.write_bytes(broken)
        with pytest.raises(ArgumentError):
            list(read_export(exported))


def test_every_truncation_is_noticed(exported: Path):
    whole = exported.read_bytes()
    for size in range(0, len(whole), 41):
        exported.write_bytes(whole[:size])
        with pytest.raises(ArgumentError):
            list(read_export(exported))


def test_an_archive_that_is_not_signed_is_refused_if_signatures_are_asked_for(tmp_path: Path, key: CacheKey):
    path = tmp_path / "kernels.be"
    with ExportWriter(path) as file:
        file.add(key.digest, archive(key))
    assert len(list(read_export(path))) == 1
    with pytest.raises(ArgumentError, match="is not signed"):
        list(read_export(path, trusts))


@pytest.mark.parametrize(
    ("name", "method", "problem"),
    [
        ("../../etc/passwd", zipfile.ZIP_STORED, "no archive of an entry"),
        ("ab" * 32, zipfile.ZIP_DEFLATED, "no archive of an entry"),
        ("ab" * 32, zipfile.ZIP_STORED, "is of another entry than its name says"),
    ],
)
def test_a_zip_of_other_things_is_refused(tmp_path: Path, key: CacheKey, name: str, method: int, problem: str):
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr(zipfile.ZipInfo("be-export"), "1\n")
        file.writestr(name, archive(key))
    with pytest.raises(ArgumentError, match=problem):
        list(read_export(path))


@pytest.mark.parametrize(("mark", "problem"), [("2\n", "another release's format"), (None, "no export of the cache")])
def test_another_format_says_so(tmp_path: Path, mark: str | None, problem: str):
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("be-export" if mark else "x", mark or "")
    with pytest.raises(ArgumentError, match=problem):
        list(read_export(path))


def test_a_file_appears_when_it_is_whole(tmp_path: Path, key: CacheKey):
    path = tmp_path / "kernels.be"
    path.write_bytes(b"older")

    def export(problem: Callable[[], object]) -> None:
        with ExportWriter(path) as file:
            file.add(key.digest, archive(key))
            problem()

    with pytest.raises(ZeroDivisionError):
        export(lambda: 1 // 0)
    assert path.read_bytes() == b"older"
    assert os.listdir(tmp_path) == ["kernels.be"]
    with pytest.raises(ArgumentError, match="can't be written"), ExportWriter(tmp_path / "none" / "x"):
        pass


def test_a_file_is_written_through_no_link(tmp_path: Path, key: CacheKey):
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "kernels.be.partial").symlink_to("mine")
    with ExportWriter(tmp_path / "kernels.be") as file:
        file.add(key.digest, archive(key))
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_imported_archives_are_for_the_user_alone(tmp_path: Path, wanted: WantedEntry):
    place = Imported(tmp_path / "cache")
    assert not place.is_there
    assert place.fetch(wanted) is None
    for content in (b"one", b"two"):
        place.store(wanted.key.digest, content)
    assert place.fetch(wanted) == b"two"
    assert place.fetch(WantedEntry(make_key("module", ("name", "other")), "other", lambda: False)) is None
    ((path, _),) = place.archives()
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, place.folder)]
    assert modes == [0o600, 0o700, 0o700]


def test_what_others_could_have_written_is_not_there(tmp_path: Path, wanted: WantedEntry):
    place = Imported(tmp_path / "cache")
    place.store(wanted.key.digest, b"data")
    ((path, _),) = place.archives()
    for each, mode in ((path, 0o666), (path.parent, 0o777), (place.folder, 0o770)):
        before = stat.S_IMODE(each.stat().st_mode)
        each.chmod(mode)
        assert place.fetch(wanted) is None
        each.chmod(before)
    assert place.fetch(wanted) == b"data"
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert place.fetch(wanted) is None
    path.unlink()
    os.mkfifo(path)
    assert place.fetch(wanted) is None
    place.folder.rename(tmp_path / "elsewhere")
    place.folder.symlink_to(tmp_path / "elsewhere")
    assert place.fetch(wanted) is None
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(CacheError):
        Imported(tmp_path / "cache")


def test_an_archive_that_lost_its_content_is_a_miss(tmp_path: Path, wanted: WantedEntry):
    place = Imported(tmp_path / "cache")
    place.store(wanted.key.digest, b"")
    assert place.fetch(wanted) is None, "b'' is how a job says that the entry has come"


def test_an_archive_that_cant_be_written_is_an_error_of_the_cache(tmp_path: Path, wanted: WantedEntry):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "imported").write_text("")
    with pytest.raises(CacheError):
        Imported(tmp_path / "cache").store(wanted.key.digest, b"data")
