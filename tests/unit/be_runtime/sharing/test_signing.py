"""Keys and signatures, and the commands that make them."""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_runtime.sharing.archive import ArchiveError, Head, pack, unpack
from be_runtime.sharing.remote import open_signer
from be_toolchain.machine.local_system import LocalSystem

pytest.importorskip("cryptography")

from be_runtime.cli.cache import keys as cache_keys
from be_runtime.sharing import signing
from tests.support.accounts import open_place

__all__ = ["open_place"]  # a fixture

HEAD = Head("digest", "module", "name", (("a", 3, ""),), (), (), (), "host", 1.0)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, str]:
    answer = cache_keys.keygen(argparse.Namespace(out=tmp_path / "key"))
    return tmp_path / "key", str(answer.data["public_key"])


def test_what_is_signed_by_a_key_is_known_by_its_other_half(keys: tuple[Path, str]):
    private, public = keys
    signature = signing.read_signer(private, "x")(b"data")
    verify = signing.read_verifier(public, "x")
    assert len(signature) == 64
    assert verify(b"data", signature)
    assert not verify(b"data!", signature)
    assert not verify(b"data", bytes(64))
    assert not verify(b"data", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not signing.read_verifier(signing.make_keys()[1], "x")(b"data", signature)


def test_several_keys_may_be_named_as_texts_and_files(keys: tuple[Path, str], tmp_path: Path):
    private, public = keys
    file = tmp_path / "keys"
    file.write_text(f"# CI's\n{signing.make_keys()[1]}\n\n{public}\n")
    other = signing.make_keys()[1]
    signature = signing.read_signer(private, "x")(b"data")
    assert signing.read_verifier(f"{other}, {file}", "x")(b"data", signature)
    assert signing.read_verifier(f"{other},{public}", "x")(b"data", signature)
    assert not signing.read_verifier(other, "x")(b"data", signature)


def test_a_private_key_is_its_owners_alone_and_never_overwritten(keys: tuple[Path, str]):
    private, public = keys
    text = private.read_text()
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public not in text
    with pytest.raises(ArgumentError, match="never overwritten"):
        cache_keys.keygen(argparse.Namespace(out=private))
    assert private.read_text() == text
    with pytest.raises(ArgumentError, match="can't be written"):
        cache_keys.keygen(argparse.Namespace(out=private / "below"))


def test_a_private_key_that_others_can_read_is_told_of_once(keys: tuple[Path, str]):
    private, _ = keys
    settings, said, system = Settings(remote_cache_private_key=private), list[str](), LocalSystem()
    open_signer(settings, system, said.append)
    assert said == []
    private.chmod(0o640)
    for _ in range(2):
        open_signer(settings, system, said.append)
    (text,) = said
    assert text.endswith(f"is {private}, which can be read by other users (mode 640): chmod 600 {private}")
    assert system.private_key_problem(private / "none") == "can't be read: Not a directory"
    assert system.has_package("cryptography")
    assert not system.has_package("nosuch_package")


def test_settings_name_keys_by_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    answer = cache_keys.keygen(argparse.Namespace(out=None))
    assert f"BE_REMOTE_CACHE_PRIVATE_KEY={tmp_path / 'be-cache.key'}\n" in answer.text
    Path("keys").write_text(str(answer.data["public_key"]))
    signing.read_verifier(str(Path("keys").absolute()), "SETTING")
    with pytest.raises(ArgumentError, match=r"^SETTING is 'keys', neither a key nor an absolute path"):
        signing.read_verifier("keys", "SETTING")


def test_what_is_no_key(keys: tuple[Path, str], tmp_path: Path):
    private, public = keys
    file = tmp_path / "public"
    file.write_text(public)
    (tmp_path / "empty").touch()
    for words in ("", ",", "short", str(tmp_path), str(tmp_path / "empty"), str(private), f"{public},short"):
        with pytest.raises(ArgumentError, match=r"^SETTING is ") as caught:
            signing.read_verifier(words, "SETTING")
        assert private.read_text().strip().rpartition(":")[2] not in str(caught.value)
    for path in (tmp_path / "none", file, tmp_path):
        with pytest.raises(ArgumentError, match=r"^SETTING is "):
            signing.read_signer(path, "SETTING")
    pasted = private.read_text().strip()
    for read in (
        lambda: signing.read_signer(Path(pasted), "SETTING"),
        lambda: signing.read_verifier(pasted, "SETTING"),
    ):
        with pytest.raises(ArgumentError, match=r"^SETTING is 'private-ed25519:\.\.\.', neither"):
            read()


def test_an_archive_is_signed_afterwards(keys: tuple[Path, str], tmp_path: Path):
    private, public = keys
    archive = tmp_path / "archive"
    data = b"abc"
    archive.write_bytes(pack(HEAD._replace(outputs=(("a", 3, hashlib.sha256(data).hexdigest()),)), {"a": data}))
    verify = signing.read_verifier(public, "x")
    with pytest.raises(ArchiveError, match="is not signed"):
        unpack(archive.read_bytes(), verify)
    cache_keys.sign(argparse.Namespace(file=archive, key=private))
    assert unpack(archive.read_bytes(), verify)[1] == {"a": data}
    with pytest.raises(ArchiveError, match="not signed by a key that is trusted here"):
        unpack(archive.read_bytes(), signing.read_verifier(signing.make_keys()[1], "x"))
    for path in (tmp_path / "none", private):
        with pytest.raises(ArgumentError):
            cache_keys.sign(argparse.Namespace(file=path, key=private))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "key"]


@pytest.mark.parametrize(("mode", "uid"), [(0o666, 0), (0o644, 4242)])
def test_a_file_of_keys_that_others_may_write_is_refused(tmp_path: Path, mode: int, uid: int):
    path = tmp_path / "keys"
    path.write_text(signing.make_keys()[1])
    path.chmod(mode)
    if uid and os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, uid or -1, -1)
    with pytest.raises(ArgumentError, match=r"(another|other) user"):
        signing.read_verifier(str(path), "BE_REMOTE_CACHE_PUBLIC_KEY")


def test_a_file_of_keys_that_others_could_exchange_is_refused(open_place: Path):
    path = open_place / "keys"
    path.write_text(signing.make_keys()[1])
    signing.read_verifier(str(path), "BE_REMOTE_CACHE_PUBLIC_KEY")
    for mode in (0o777, 0o1777):
        open_place.chmod(mode)
        with pytest.raises(ArgumentError, match="other users"):
            signing.read_verifier(str(path), "BE_REMOTE_CACHE_PUBLIC_KEY")
