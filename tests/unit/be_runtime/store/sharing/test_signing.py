"""Keys and signatures, and the commands that make them."""

from __future__ import annotations

import argparse
import os
import stat
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError, LoadError
from be_runtime.settings import Settings
from be_runtime.store import artifact, remote, signing
from be_runtime.store.keys import make_key
from be_toolchain.machine.local_system import LocalSystem

pytest.importorskip("cryptography")

from be_runtime.cli import cache_change as commands
from tests.support.accounts import open_place
from tests.support.artifacts import packed

__all__ = ["open_place"]  # a fixture

OTHER = signing.make_keys()[1]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, str]:
    answer = commands.keygen(argparse.Namespace(out=tmp_path / "key"))
    return tmp_path / "key", str(answer.data["public_key"])


def test_what_is_signed_by_a_key_is_known_by_its_other_half(keys: tuple[Path, str], tmp_path: Path):
    """Several may be named as texts and files."""
    private, public = keys
    (tmp_path / "keys").write_text(f"# CI's\n{OTHER}\n\n{public}\n")
    signature = signing.read_signer(private, "x")(b"data")
    for text in (public, f"{OTHER}, {tmp_path / 'keys'}", f"{OTHER},{public}"):
        assert signing.read_verifier(text, "x").check(b"data", signature)
    assert not signing.read_verifier(OTHER, "x").check(b"data", signature)
    forged = ((b"data!", signature), (b"data", bytes(64)), (b"data", signature[:-1] + bytes([signature[-1] ^ 1])))
    assert not any(signing.read_verifier(public, "x").check(*each) for each in forged)


def test_a_private_key_is_its_owners_alone_and_never_overwritten(keys: tuple[Path, str]):
    private, public = keys
    text = private.read_text()
    assert (stat.S_IMODE(private.stat().st_mode), public in text) == (0o600, False)
    for path, words in ((private, "never overwritten"), (private / "below", "can't be written")):
        with pytest.raises(ArgumentError, match=words):
            commands.keygen(argparse.Namespace(out=path))
    assert private.read_text() == text


def test_a_private_key_that_others_can_read_is_told_of_once(keys: tuple[Path, str]):
    private, _ = keys
    settings, said, system = Settings(remote_cache_private_key=private), list[str](), LocalSystem()
    remote.open_signer(settings, system, said.append)
    assert said == []
    private.chmod(0o640)
    for _ in range(2):
        remote.open_signer(settings, system, said.append)
    (text,) = said
    assert text.endswith(f"is {private}, which can be read by other users (mode 640): chmod 600 {private}")
    assert system.private_key_problem(private / "none") == "can't be read: Not a directory"
    assert system.has_package("cryptography")
    assert not system.has_package("nosuch_package")


def test_settings_name_keys_by_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    answer = commands.keygen(argparse.Namespace(out=None))
    assert f"BE_REMOTE_CACHE_PRIVATE_KEY={tmp_path / 'be-cache.key'}\n" in answer.text
    Path("keys").write_text(str(answer.data["public_key"]))
    signing.read_verifier(str(tmp_path / "keys"), "SETTING")
    with pytest.raises(ArgumentError, match=r"^SETTING is 'keys', neither a key nor an absolute path"):
        signing.read_verifier("keys", "SETTING")


def test_what_is_no_key(keys: tuple[Path, str], tmp_path: Path):
    private, public = keys
    pasted = private.read_text().strip()
    (tmp_path / "public").write_text(public)
    (tmp_path / "empty").touch()
    for words in ("", ",", "short", str(tmp_path), str(tmp_path / "empty"), str(private), f"{public},short", pasted):
        with pytest.raises(ArgumentError, match=r"^SETTING is ") as caught:
            signing.read_verifier(words, "SETTING")
        assert pasted.rpartition(":")[2] not in str(caught.value)
    assert caught.value.message.startswith("SETTING is 'private-ed25519:...', neither")
    for path in (tmp_path / "none", tmp_path / "public", tmp_path, Path(pasted)):
        with pytest.raises(ArgumentError, match=r"^SETTING is ") as caught:
            signing.read_signer(path, "SETTING")
    assert caught.value.message.startswith("SETTING is 'private-ed25519:...', neither")


def test_an_artifact_is_signed_afterwards(keys: tuple[Path, str], tmp_path: Path):
    private, public = keys
    file = tmp_path / "artifact"
    file.write_bytes(packed(make_key("module")))
    commands.sign(argparse.Namespace(file=file, key=private))
    assert artifact.unpack(file.read_bytes(), "here", signing.read_verifier(public, "x")).table.inputs
    with pytest.raises(LoadError, match="not signed by a trusted key"):
        artifact.unpack(file.read_bytes(), "here", signing.read_verifier(OTHER, "x"))
    for path in (tmp_path / "none", private):
        with pytest.raises(ArgumentError):
            commands.sign(argparse.Namespace(file=path, key=private))
    assert sorted(os.listdir(tmp_path)) == ["artifact", "key"]


def test_a_file_of_keys_that_others_may_write_or_could_exchange_is_refused(open_place: Path):
    path = open_place / "keys"
    path.write_text(OTHER)
    signing.read_verifier(str(path), "BE_REMOTE_CACHE_PUBLIC_KEY")
    for each, mode in ((open_place, 0o777), (open_place, 0o1777), (path, 0o666)):
        before = stat.S_IMODE(each.stat().st_mode)
        each.chmod(mode)
        with pytest.raises(ArgumentError, match="other users"):
            signing.read_verifier(str(path), "BE_REMOTE_CACHE_PUBLIC_KEY")
        each.chmod(before)
