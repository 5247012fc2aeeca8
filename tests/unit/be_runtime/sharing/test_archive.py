"""Archives of entries: what is refused, and that nothing is read before its signature."""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from be_runtime.sharing import archive
from be_runtime.sharing.archive import MAGIC, ArchiveError, Head, Sign, Verify, pack, resigned, unpack

OUTPUTS = {"module.so": b"\x7fELF" * 100, "module.json": b"{}"}
HEAD = Head(
    digest="ab" * 32,
    kind="module",
    name="k",
    outputs=tuple((name, len(data), hashlib.sha256(data).hexdigest()) for name, data in OUTPUTS.items()),
    dependencies=(("<site>/a.h", "00"),),
    others=(("/usr/bin/g++", "11"),),
    absent=(("/usr/include", 0, ("b.h",)),),
    host="here",
    seconds=0.5,
)


def seal(data: bytes) -> bytes:
    return hashlib.sha512(b"secret" + data).digest()


def trusts(data: bytes, signature: bytes) -> bool:
    return seal(data) == signature


def read(data: bytes, verify: Verify | None = None) -> tuple[Head, dict[str, bytes]]:
    head, outputs = unpack(data, verify)
    return head, {name: bytes(content) for name, content in outputs.items()}


def test_what_is_packed_is_unpacked():
    assert read(pack(HEAD, OUTPUTS)) == (HEAD, OUTPUTS)
    assert read(pack(HEAD, OUTPUTS, seal), trusts) == (HEAD, OUTPUTS)
    assert read(resigned(pack(HEAD, OUTPUTS), seal), trusts) == (HEAD, OUTPUTS)


def test_each_flipped_byte_of_a_signed_archive_is_noticed():
    whole = pack(HEAD, OUTPUTS, seal)
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        with pytest.raises(ArchiveError):
            unpack(bytes(broken), trusts)


def test_without_a_signature_each_flipped_byte_outside_of_it_is_noticed():
    whole = pack(HEAD, OUTPUTS)
    signature = range(len(MAGIC), len(MAGIC) + 64)
    for at in (at for at in range(len(whole)) if at not in signature):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        with contextlib.suppress(ArchiveError):
            assert read(bytes(broken)) == (HEAD, OUTPUTS), "a bit that zlib does not use"


def test_each_shorter_or_longer_archive_is_noticed():
    whole = pack(HEAD, OUTPUTS)
    for data in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(ArchiveError):
            unpack(data)


@pytest.mark.parametrize(
    ("sign", "words"), [(None, "is not signed$"), (lambda _: b"x" * 64, "not signed by a key that is trusted here")]
)
def test_an_untrusted_archive_is_refused_before_its_head_is_read(
    monkeypatch: pytest.MonkeyPatch, sign: Sign, words: str
):
    data = pack(HEAD, OUTPUTS, sign)
    monkeypatch.setattr(archive, "_read_head", pytest.fail)
    with pytest.raises(ArchiveError, match=words):
        unpack(data, trusts)


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "manifest.json", "key.json", "", "a\0b"])
def test_an_output_stays_in_its_folder(name: str):
    head = HEAD._replace(outputs=((name, 0, hashlib.sha256(b"").hexdigest()),))
    with pytest.raises(ArchiveError, match="the name of an output"):
        unpack(pack(head, {name: b""}))


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": (("a", -1, "00"),)},
        {"outputs": (("a", 0, "00"), ("a", 0, "00"))},
        {"dependencies": (("a", 1),)},
        {"dependencies": (("a", "b", "c"),)},
        {"absent": ((1, 0, ()),)},
        {"absent": (("/", 0, (1,)),)},
        {"absent": (("/", 0, "names"),)},
        {"dependencies": "a path and a hash"},
        {"others": {"ab": "cd"}},
        {"seconds": "x"},
        {"seconds": float("nan")},
        {"host": None},
        {"name": "k" * 2000},
        {"dependencies": (("/a/" * 340, ""),) * 1000},
        {"absent": (("/", 0, ("a",) * 40_000),)},
    ],
)
def test_a_head_of_other_types_or_sizes_is_refused(change: dict[str, Any]):
    with pytest.raises(ArchiveError, match="head can't be read"):
        unpack(pack(HEAD._replace(**change), {**OUTPUTS, "a": b""}))


def test_a_head_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch):
    """To read 64 MB of brackets took 12 s."""
    sizes: list[int] = []

    def loads(text: str) -> dict[str, Any]:
        sizes.append(len(text))
        return {}

    monkeypatch.setattr(archive, "json", SimpleNamespace(loads=loads))
    text = zlib.compress(b'{"outputs":[[]' + b",[]" * (1 << 23) + b"]}")
    with pytest.raises(ArchiveError, match="head can't be read"):
        unpack(MAGIC + bytes(64) + len(text).to_bytes(8, "little") + text)
    assert sizes == [1 << 22]


def test_another_format_is_told_from_another_file():
    with pytest.raises(ArchiveError, match="another release"):
        unpack(b"be-entry-2\n" + bytes(100))
    with pytest.raises(ArchiveError, match="no archive"):
        unpack(b"<html>not found</html>")
