"""A store: what it keeps of a build and what it refuses, and that a damaged entry is built again."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Recorded, Store, make_key
from be_runtime.cache.folder.layout import variant_name
from be_runtime.cache.publish import GRACE_NS, superseded
from be_runtime.errors import CacheError
from be_toolchain.machine.sealed_json import seal, unseal
from tests.unit.be_runtime.cache.bench import Bench, tree


def test_nothing_is_made_before_the_first_build(bench: Bench):
    store = bench.store
    assert bench.is_missing()
    assert (list(store.entries()), store.clear(), store.prune(), store.explain(bench.key)) == ([], 0, True, ())
    assert not store.root.exists()


def test_a_miss_builds_and_then_hits(bench: Bench):
    first = bench.make()
    assert (first.built, first.reason, first.output("m.so").read_bytes()) == (True, "it was not in the cache", b"one")
    os.utime(first.path / "manifest.json", (1e9, 1e9))
    second = bench.make()
    assert (second.built, second.reason, second.path, bench.builds) == (False, "", first.path, 1)
    assert second.manifest == first.manifest
    assert bench.hit() == second
    assert (first.path / "manifest.json").stat().st_mtime > 1.5e9, "it is marked as used"


def test_only_outputs_and_records_stay(bench: Bench):
    entry = bench.make()
    assert (tree(entry.path), bench.staged()) == (["key.json", "m.so", "manifest.json"], [])
    assert CacheKey.from_json((entry.path / "key.json").read_text()) == bench.key
    with pytest.raises(KeyError):
        entry.output("other.so")


def test_outputs_may_be_in_folders_and_hard_linked(bench: Bench):
    shared = bench.folder / "of-another-cache.o"
    shared.write_bytes(b"object")
    mode = stat.S_IMODE(shared.stat().st_mode)

    def build(staging: Path) -> BuildOutput:
        (staging / "a" / "b").mkdir(parents=True)
        (staging / "a" / "b" / "x.bin").write_bytes(b"x")
        os.link(shared, staging / "y.o")
        return BuildOutput(outputs=("a/b/x.bin", "y.o", "y.o"))

    entry = bench.make(build)
    assert (entry.output("a/b/x.bin").read_bytes(), entry.output("y.o").read_bytes()) == (b"x", b"object")
    assert len(entry.manifest.outputs.paths) == 2
    assert not entry.output("y.o").samefile(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    assert bench.hit()


def test_dependencies_inside_the_staging_folder_are_left_out(bench: Bench):
    def build(staging: Path) -> BuildOutput:
        own = (staging / "scratch.o", Path("scratch.o"), Path("./scratch.o"))
        return bench.build(staging, dependencies=(*own, bench.header, bench.header))

    assert bench.make(build).manifest.dependencies.paths == (str(bench.header),)
    assert bench.hit()


def test_force_builds_into_a_new_folder(bench: Bench):
    first = bench.make()
    inode = first.output("m.so").stat().st_ino
    second = bench.make(force=True)
    assert (second.built, second.reason) == (True, "a rebuild was requested")
    assert first.output("m.so").stat().st_ino == inode
    assert bench.hit().path == second.path != first.path


def test_entries_of_one_key_are_bounded_once_nobody_can_be_about_to_load_them():
    folders = [f"/k/{variant_name(number * GRACE_NS, '00000000')}" for number in range(9, 0, -1)]
    assert superseded(folders, 6 * GRACE_NS + 1) == folders[4:]
    assert superseded(folders, 6 * GRACE_NS) == folders[5:]
    assert superseded(folders[:4], 100 * GRACE_NS) == []


def test_superseded_entries_go_at_the_next_build(bench: Bench):
    entries = [bench.make(force=True) for _ in range(6)]
    assert all(entry.path.exists() for entry in entries)
    aged = [entry.path.rename(entry.path.with_name(variant_name(n, "0" * 8))) for n, entry in enumerate(entries[:3])]
    bench.make(force=True)
    assert [path.exists() for path in aged] == [False] * 3
    assert all(entry.path.exists() for entry in entries[3:])


@pytest.mark.parametrize("error", [ValueError("bad source"), OSError(13, "Permission denied"), KeyboardInterrupt()])
def test_a_failed_build_leaves_the_old_state(bench: Bench, error: BaseException):
    bench.make()
    before = tree(bench.store.root)

    def fail(staging: Path) -> BuildOutput:
        bench.build(staging)
        raise error

    with pytest.raises(type(error)) as caught:
        bench.make(fail, force=True)
    assert caught.value is error
    assert (tree(bench.store.root), bench.staged()) == (before, [])
    assert bench.hit()
    assert bench.make(force=True, lock_timeout_s=1).built


@pytest.mark.parametrize(
    ("message", "lists"),
    [
        ("no outputs", [()]),
        ("did not make its output 'missing.so'", [("m.so", "missing.so")]),
        ("not a plain relative path", [("../m.so",), ("/etc/passwd",), ("a/../m.so",), ("",), (".",), ("a\0b",)]),
        ("keeps for itself", [("manifest.json",), ("key.json",)]),
        ("not a regular file", [("folder",), ("link.so",)]),
    ],
)
def test_bad_outputs_are_refused(bench: Bench, message: str, lists: list[tuple[str, ...]]):
    def build(staging: Path) -> BuildOutput:
        (staging / "folder").mkdir()
        (staging / "link.so").symlink_to("/etc/passwd")
        return bench.build(staging, outputs=left.pop())

    left = lists.copy()
    while left:
        with pytest.raises(CacheError, match=message):
            bench.make(build)
        assert bench.is_missing()
        assert bench.staged() == []


def test_folders_and_files_are_the_users_alone(bench: Bench):
    """Also those that lead to a new cache."""
    bench.store = Store(bench.folder / "a" / "b" / "cache")
    old = os.umask(0)
    try:
        bench.make()
    finally:
        os.umask(old)
    for path in (bench.folder / "a", *(bench.folder / "a").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_store_in_an_impossible_place_says_so(bench: Bench):
    store = Store(bench.header / "cache")
    assert store.get(bench.key) is None
    with pytest.raises(CacheError, match=r"x\.h/cache") as caught:
        store.get_or_build(bench.key, bench.build)
    assert any("BE_CACHE_DIR" in hint for hint in caught.value.hints)


def test_a_vanished_cache_is_a_cache_error_and_a_cleared_one_does_not_matter(bench: Bench):
    def clear(staging: Path) -> BuildOutput:
        bench.store.clear()
        bench.store.prune(max_size_bytes=0)
        return bench.build(staging)

    def vanish(staging: Path) -> BuildOutput:
        output = bench.build(staging)
        bench.store.root.rename(bench.folder / "elsewhere")
        return output

    assert bench.make(clear).built
    assert bench.hit()
    with pytest.raises(CacheError):
        bench.make(vanish, force=True)


def test_explain_compares_with_the_newest_of_the_name(bench: Bench):
    def key(name: str, flag: str) -> CacheKey:
        return make_key("module", ("name", name), ("flags", (flag,)))

    for each in (key("add", "-O1"), key("add", "-O2"), key("mul", "-O9")):
        entry = bench.store.get_or_build(each, bench.build)
    assert bench.store.explain(key("add", "-O3")) == ("flags: removed '-O2'; added '-O3'",)
    assert bench.store.explain(key("other", "-O3")) == ()
    (entry.path / "key.json").write_text((entry.path / "key.json").read_text().replace("-O9", "-O0"))
    assert bench.store.explain(key("mul", "-O3")) == (), "a damaged key is not believed"


def test_an_entry_says_who_made_it_how_long_that_took_and_why(bench: Bench):
    def build(staging: Path) -> BuildOutput:
        now_ns = time.time_ns()
        recorded = Recorded(now_ns - 7_000_000_000, now_ns, {})
        return bench.build(staging, source="process 0 of the job", recorded=recorded)

    made = bench.make().manifest.made
    assert (made.host, made.reason, made.source) == (os.uname().nodename, "it was not in the cache", "")
    assert 0 <= made.seconds < 60
    bench.edit(b"two")
    made = bench.make(build).manifest.made
    assert (made.reason, made.source) == (f"{bench.header} changed", "process 0 of the job")
    assert 6.9 < made.seconds < 66, "the time of a build begins where its records do"


def test_a_build_may_find_that_the_entry_has_come(bench: Bench):
    def come(_staging: Path) -> None:
        shutil.copytree(other.root, bench.store.root, dirs_exist_ok=True)

    other = Store(bench.folder / "other")
    other.get_or_build(bench.key, bench.build)
    entry = bench.make(come)
    assert (entry.built, entry.reason, entry.output("m.so").read_bytes()) == (False, "", b"one")
    assert bench.staged() == []
    with pytest.raises(CacheError, match=r"mul was built by another machine, .*: it was not in the cache"):
        bench.store.get_or_build(make_key("module", ("name", "mul")), lambda _: None)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("m.so", damage) for damage in (b"O", b"ONE", "the same size and time", "none", "a folder")),
        *(("manifest.json", damage) for damage in (b"\xff{garbage", b"", "cut", "none", "a folder", "a link")),
        *(("manifest.json", damage) for damage in ({"schema": 0}, {"digest": make_key("k").digest})),
        ("*", "none"),
    ],
)
def test_a_damaged_entry_is_built_again_and_removed(bench: Bench, file: str, damage: bytes | str | dict[str, Any]):
    broken = bench.make()
    for path in broken.path.glob(file):
        before = path.stat()
        if isinstance(damage, bytes):
            path.write_bytes(damage)
        elif isinstance(damage, dict):
            path.write_text(seal({**unseal(path.read_text()), **damage}))
        elif damage == "the same size and time":
            path.write_bytes(b"ONE")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        elif damage == "cut":
            os.truncate(path, before.st_size - 20)
        else:
            path.rename(bench.folder / "moved")
        if damage == "a folder":
            path.mkdir()
        if damage == "a link":
            path.symlink_to(bench.folder / "moved")
    assert bench.is_missing()
    entry = bench.make()
    assert (entry.built, entry.output("m.so").read_bytes()) == (True, b"one")
    assert "damaged" in entry.reason
    assert not broken.path.exists()
    assert bench.hit()


def test_a_touched_output_and_an_older_one_are_still_good_and_other_names_are_ignored(bench: Bench):
    entry = bench.make()
    (entry.path.parent / "notes.txt").write_text("mine")
    (entry.path.parent / "zzz").mkdir()
    os.utime(entry.output("m.so"), (1e9, 1e9))
    assert bench.hit().manifest.outputs.mtimes_ns[0] == 10**18
    (bench.make(force=True).path / "manifest.json").write_bytes(b"garbage")
    assert bench.hit().path == entry.path
    assert (entry.path.parent / "notes.txt").exists()
