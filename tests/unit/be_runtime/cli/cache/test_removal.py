"""``cache prune``, ``clear`` and ``verify``: what goes, and what stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import BuildOutput, Entry, Store, make_key
from be_runtime.cache.validity.manifest import parse_manifest, render_manifest
from be_runtime.load.own_code import own_code_digest
from be_runtime.own_files import INCLUDE_DIR
from tests.support.rebuilds import TICK_S

Put = Callable[..., Entry]
Told = Callable[..., dict[str, Any]]
Said = Callable[..., str]

MIB = b"x" * 2**20


def use(entry: Entry, days_ago: float) -> None:
    used_s = time.time() - days_ago * 86400
    os.utime(entry.path / "manifest.json", (used_s, used_s))


def names(told: Told) -> list[str]:
    return sorted(row["name"] for row in told("list", "--all")["entries"])


def test_prune_removes_by_age_then_the_least_recently_used(put: Put, told: Told, said: Said):
    for name, days in (("a", 1), ("b", 2), ("c", 3), ("old", 100)):
        use(put(name, content=MIB), days)
    use(put("handler", kind="handler"), 100)
    lines = said("prune", "--max-size", "2", "--dry-run").splitlines()
    assert lines[0] == "would remove 3 entries, 2.0 MiB"
    assert [line.split()[1:] for line in lines[2:]] == [
        ["c", "module", "1.0", "MiB"],
        ["old", "module", "1.0", "MiB"],
        ["handler", "handler", "4", "B"],
    ]
    assert names(told) == ["a", "b", "c", "handler", "old"]
    removed = told("prune", "--max-age", "90")
    assert sorted(row["name"] for row in removed["removed"]) == ["handler", "old"]
    assert said("prune", "--max-size", "2") == "removed 1 entry, 1.0 MiB\n"
    assert names(told) == ["a", "b"]
    assert said("prune", "--max-size", "0") == "removed 2 entries, 2.0 MiB\n"


def test_prune_takes_its_limits_from_the_settings(put: Put, told: Told, monkeypatch: pytest.MonkeyPatch):
    use(put("a", content=MIB), 20)
    use(put("b", content=MIB), 1)
    assert told("prune")["removed"] == []
    monkeypatch.setenv("BE_CACHE_MAX_AGE_DAYS", "10")
    assert [row["name"] for row in told("prune")["removed"]] == ["a"]


def test_prune_removes_what_is_damaged(put: Put, told: Told):
    (put("a").path / "manifest.json").write_text("")
    put("b")
    assert [row["is_damaged"] for row in told("prune")["removed"]] == [True]
    assert names(told) == ["b"]


@pytest.mark.parametrize("words", [["--max-size", "-1"], ["--max-age", "soon"], ["--max-size", "1.5"]])
def test_a_limit_is_a_whole_number(words: list[str], said: Said):
    with pytest.raises(SystemExit) as left:
        said("prune", *words)
    assert left.value.code == 64


def test_clear_removes_a_name_with_its_parts_or_everything(put: Put, told: Told, said: Said, cache: Path):
    for name, kind in (("add", "module"), ("add", "object"), ("scale", "kernel"), ("handler", "handler")):
        put(name, kind=kind)
    assert said("clear", "add", "--dry-run").startswith("would remove 2 entries, 8 B\nentry ")
    assert said("clear", "add") == "removed 2 entries, 8 B\n"
    assert names(told) == ["handler", "scale"]
    assert said("clear") == "removed 1 entry, 4 B\n"
    assert names(told) == ["handler"], "the toolchain's part is not the kernels'"
    assert "no entry named handler" in said("clear", "handler", code=1)
    assert said("clear", "--all") == "removed 1 entry, 4 B\n"
    assert not [*cache.rglob("manifest.json")]


def test_clear_removes_what_killed_builds_left(put: Put, told: Told, cache: Path):
    put("add")
    left = cache / "kernels-v1" / "staging" / "0123456789abcdef.01234567.1.01234567"
    left.mkdir()
    os.utime(left, (1, 1))
    told("clear", "--dry-run")
    assert left.exists()
    told("clear")
    assert not left.exists()


def test_verify_finds_what_stat_does_not(put: Put, told: Told, said: Said):
    entry, other = put("add", content=b"good"), put("scale")
    library = entry.path / "m.so"
    status = library.stat()
    library.write_bytes(b"evil")
    os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    text = said("verify", code=1)
    assert f"add {entry.manifest.digest[:12]} is damaged: m.so in {entry.path}" in text
    assert text.endswith("2 entries: 1 as built, 0 out of date, 1 damaged, remove them with --remove\n")
    assert said("verify", "scale") == "1 entry: 1 as built, 0 out of date, 0 damaged\n"
    assert told("verify", code=1)["damaged"][0]["files"] == ["m.so"]
    assert told("verify", "--remove")["is_removed"] is True
    assert (entry.path.exists(), other.path.exists()) == (False, True)


@pytest.mark.parametrize("name", ["m.so", "manifest.json", "key.json"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"\0")])
def test_verify_checks_every_file_of_an_entry(put: Put, told: Told, name: str, damage: Callable[[Path], object]):
    entry = put("add")
    damage(entry.path / name)
    assert told("verify", code=1)["damaged"][0]["files"] == [name]
    told("verify", "--remove")
    assert not entry.path.exists()


def test_verify_tells_damage_from_a_changed_source(put: Put, said: Said, told: Told, header: Path):
    entries = [put("add"), put("scale")]
    status = header.stat()
    header.write_text("two")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    text = said("verify")
    assert f"add {entries[0].manifest.digest[:12]} is out of date: {header} changed since it was built" in text
    assert text.endswith("2 entries: 0 as built, 2 out of date, 0 damaged\n")
    assert told("verify", "--remove")["is_removed"] is False
    assert entries[0].path.exists()


def test_prune_removes_what_no_load_can_use_if_asked_for(put: Put, told: Told, said: Said, header: Path):
    """What was made of files that are gone with their environment, and what was made before an edit."""
    put("older")
    header.write_text("two")
    time.sleep(TICK_S)
    put("newer")
    put("handler", kind="handler")
    assert told("prune")["removed"] == []
    assert "would remove 1 entry" in said("prune", "--stale", "--dry-run")
    assert [row["name"] for row in told("prune", "--stale")["removed"]] == ["older"]
    header.unlink()
    assert sorted(row["name"] for row in told("prune", "--stale")["removed"]) == ["handler", "newer"]
    assert told("prune", "--stale")["removed"] == []


@pytest.mark.parametrize(("generator", "goes"), [("", True), ("another release", False)])
def test_headers_of_another_release_are_in_an_environment_of_its_own(
    cache: Path, told: Told, generator: str, goes: bool
):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").touch()
        return BuildOutput(("m.so",), absent=(INCLUDE_DIR / "none.h",))

    key = make_key("module", ("name", "add"), ("generator", generator or own_code_digest()))
    Store(cache).get_or_build(key, build)
    manifest = next(cache.rglob("manifest.json"))
    changed = parse_manifest(manifest.read_bytes())
    rows = tuple(row._replace(mtime_ns=0, names=("brainevent/common.h",)) for row in changed.absent)
    manifest.write_text(render_manifest(changed._replace(absent=rows)))
    assert bool(told("prune", "--stale")["removed"]) == goes
