"""``cache import``: all of a file, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import make_key
from be_runtime.sharing.archive import Head, pack
from be_runtime.sharing.export_file import ExportWriter

Told = Callable[..., dict[str, Any]]
Said = Callable[..., str]


def archive(name: str) -> tuple[str, bytes]:
    digest = make_key("module", ("name", name)).digest
    outputs = (("module.so", 4, hashlib.sha256(b"code").hexdigest()),)
    return digest, pack(Head(digest, "module", name, outputs, (), (), (), "ci", 0.5), {"module.so": b"code"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.be"
    with ExportWriter(path) as export:
        for name in ("add", "scale"):
            export.add(*archive(name))
    return path


def test_an_import_says_whose_code_it_is_and_to_trust_it(file: Path, cache: Path, told: Told, said: Said):
    text = said("import", str(file))
    assert text.startswith(f"2 entries in {cache}/imported, not checked for a signature; ")
    assert "import only files that you trust\nadd, scale\n" in text
    assert [(row["name"], row["host"]) for row in told("import", str(file))["entries"]] == [
        ("add", "ci"),
        ("scale", "ci"),
    ]
    assert "imported: 2 archives" in said("stats")
    dry = said("clear", "--dry-run")
    assert "and 2 imported archives" in dry
    assert sorted(line.split()[1:3] for line in dry.splitlines()[2:]) == [["add", "imported"], ["scale", "imported"]]
    assert "and 2 imported archives" in said("clear")
    assert told("stats")["imported"]["archives"] == 0


def test_a_file_that_is_damaged_at_its_end_leaves_nothing(file: Path, cache: Path, told: Told):
    whole = bytearray(file.read_bytes())
    whole[whole.rindex(b"code")] ^= 1
    file.write_bytes(whole)
    assert told("import", str(file), code=1)["problem"]["code"] == "BE101"
    assert not cache.exists()


def test_prune_removes_archives_of_long_ago(file: Path, told: Told, cache: Path):
    told("import", str(file))
    assert told("prune", "--max-age", "1")["imported"] == []
    gone = told("prune", "--max-age", "0")["imported"]
    assert sorted((row["name"], row["digest"]) for row in gone) == [
        (name, archive(name)[0]) for name in ("add", "scale")
    ]


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04cut"])
def test_a_file_that_is_no_export_is_named_and_what_one_is(tmp_path: Path, said: Said, content: bytes):
    path = tmp_path / "other.txt"
    path.write_bytes(content)
    text = said("import", str(path), code=1)
    assert f"{path} is no export of the cache, or is damaged" in text
    assert "python -m be_runtime cache export writes" in text
