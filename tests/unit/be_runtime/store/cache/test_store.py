"""A store: what it keeps of a build and what it refuses, and what listing, clearing and pruning remove."""

from __future__ import annotations

import os
import shutil
import stat
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import CacheError
from be_runtime.store import cache, folder, keys, publish
from be_toolchain.machine.files import seal, unseal
from tests.unit.be_runtime.store.cache.conftest import Bench, tree


def test_nothing_is_made_before_the_first_build(bench: Bench):
    store = bench.store
    assert bench.is_missing()
    assert (list(store.entries()), store.clear(), store.prune(), store.explain(bench.key)) == ([], 0, True, ())
    assert not store.root.exists()


def test_a_miss_builds_and_then_hits(bench: Bench):
    first = bench.make()
    assert (first.built, first.reason, first.output("m.so").read_bytes()) == (True, "it was not in the cache", b"one")
    assert (tree(first.path), bench.staged()) == (["key.json", "m.so", "manifest.json"], [])
    assert keys.CacheKey.from_json((first.path / "key.json").read_text()) == bench.key
    with pytest.raises(KeyError):
        first.output("other.so")
    os.utime(first.path / "manifest.json", (1e9, 1e9))
    second = bench.make()
    assert (second.built, second.reason, second.path, bench.builds) == (False, "", first.path, 1)
    assert second.manifest == first.manifest
    assert bench.hit() == second
    assert (first.path / "manifest.json").stat().st_mtime > 1.5e9, "it is marked as used"


def test_outputs_may_be_in_folders_and_hard_linked(bench: Bench):
    shared = bench.folder / "of-another-cache.o"
    shared.write_bytes(b"object")
    mode = stat.S_IMODE(shared.stat().st_mode)

    def build(staging: Path) -> cache.BuildOutput:
        (staging / "a" / "b").mkdir(parents=True)
        (staging / "a" / "b" / "x.bin").write_bytes(b"x")
        os.link(shared, staging / "y.o")
        return cache.BuildOutput(outputs=("a/b/x.bin", "y.o", "y.o"))

    entry = bench.make(build)
    assert (entry.output("a/b/x.bin").read_bytes(), entry.output("y.o").read_bytes()) == (b"x", b"object")
    assert len(entry.manifest.outputs.paths) == 2
    assert not entry.output("y.o").samefile(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    assert bench.hit()


def test_dependencies_inside_the_staging_folder_are_left_out(bench: Bench):
    def build(staging: Path) -> cache.BuildOutput:
        own = (staging / "scratch.o", Path("scratch.o"), Path("./scratch.o"))
        return bench.build(staging, dependencies=(*own, bench.header, bench.header))

    assert bench.make(build).manifest.dependencies.paths == (str(bench.header),)
    assert bench.hit()


def test_force_builds_into_a_new_folder(bench: Bench):
    first, second = bench.make(), bench.make(force=True)
    assert (second.built, second.reason) == (True, "a rebuild was requested")
    assert first.output("m.so").exists()
    assert bench.hit().path == second.path != first.path


def test_entries_of_one_key_are_bounded_once_nobody_can_be_about_to_load_them():
    folders = [f"/k/{folder.variant_name(number * publish.GRACE_NS, '00000000')}" for number in range(9, 0, -1)]
    assert publish.superseded(folders, 6 * publish.GRACE_NS + 1) == folders[4:]
    assert publish.superseded(folders, 6 * publish.GRACE_NS) == folders[5:]
    assert publish.superseded(folders[:4], 100 * publish.GRACE_NS) == []


def test_superseded_entries_go_at_the_next_build(bench: Bench):
    paths = [bench.make(force=True).path for _ in range(6)]
    paths[:3] = [path.rename(path.with_name(folder.variant_name(n, "0" * 8))) for n, path in enumerate(paths[:3])]
    bench.make(force=True)
    assert [path.exists() for path in paths] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("error", [ValueError("bad source"), OSError(13, "Permission denied"), KeyboardInterrupt()])
def test_a_failed_build_leaves_the_old_state(bench: Bench, error: BaseException):
    bench.make()
    before = tree(bench.store.root)

    def fail(staging: Path) -> cache.BuildOutput:
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
    def build(staging: Path, outputs: tuple[str, ...]) -> cache.BuildOutput:
        (staging / "folder").mkdir()
        (staging / "link.so").symlink_to("/etc/passwd")
        return bench.build(staging, outputs=outputs)

    for outputs in lists:
        with pytest.raises(CacheError, match=message):
            bench.make(partial(build, outputs=outputs))
        assert (bench.is_missing(), bench.staged()) == (True, [])


def test_folders_and_files_are_the_users_alone(bench: Bench):
    """Also those that lead to a new cache."""
    bench.store = cache.Cache(bench.folder / "a" / "b" / "cache")
    old = os.umask(0)
    try:
        bench.make()
    finally:
        os.umask(old)
    for path in (bench.folder / "a", *(bench.folder / "a").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_store_in_an_impossible_place_says_so(bench: Bench):
    bench.store = cache.Cache(bench.header / "cache")
    assert bench.is_missing()
    with pytest.raises(CacheError, match=r"x\.h/cache") as caught:
        bench.make()
    assert "BE_CACHE_DIR" in f"{caught.value.hints}"


def test_a_vanished_cache_is_a_cache_error_and_a_cleared_one_does_not_matter(bench: Bench):
    def clear(staging: Path) -> cache.BuildOutput:
        bench.store.clear()
        bench.store.prune(max_size_bytes=0)
        return bench.build(staging)

    def vanish(staging: Path) -> cache.BuildOutput:
        output = bench.build(staging)
        bench.store.root.rename(bench.folder / "elsewhere")
        return output

    assert bench.make(clear).built
    assert bench.hit()
    with pytest.raises(CacheError):
        bench.make(vanish, force=True)


def test_explain_compares_with_the_newest_of_the_name(bench: Bench):
    def key(name: str, flag: str) -> keys.CacheKey:
        return keys.make_key("module", ("name", name), ("flags", (flag,)))

    for each in (key("add", "-O1"), key("add", "-O2"), key("mul", "-O9")):
        entry = bench.store.get_or_build(each, bench.build)
    assert bench.store.explain(key("add", "-O3")) == ("flags: removed '-O2'; added '-O3'",)
    assert bench.store.explain(key("other", "-O3")) == ()
    (entry.path / "key.json").write_text((entry.path / "key.json").read_text().replace("-O9", "-O0"))
    assert bench.store.explain(key("mul", "-O3")) == (), "a damaged key is not believed"


def test_an_entry_says_who_made_it_how_long_that_took_and_why(bench: Bench):
    def build(staging: Path) -> cache.BuildOutput:
        now_ns = time.time_ns()
        recorded = cache.Recorded(now_ns - 7_000_000_000, now_ns, {})
        return bench.build(staging, source="process 0 of the job", recorded=recorded)

    made = bench.make().manifest.made
    assert (made.host, made.reason, made.source) == (os.uname().nodename, "it was not in the cache", "")
    assert 0 <= made.seconds < 60
    bench.edit(b"two")
    made = bench.make(build).manifest.made
    assert (made.reason, made.source) == (f"{bench.header} changed", "process 0 of the job")
    assert 6.9 < made.seconds < 66, "the time of a build begins where its records do"


def test_a_build_may_find_that_the_entry_has_come(bench: Bench):
    other = cache.Cache(bench.folder / "other")
    other.get_or_build(bench.key, bench.build)
    with bench.store.building(bench.key) as building:
        assert not building.is_there()
        shutil.copytree(other.root, bench.store.root, dirs_exist_ok=True)
        assert building.is_there()
        building.take()
    entry = building.entry
    assert entry is not None
    assert (entry.built, entry.reason, entry.output("m.so").read_bytes()) == (False, "", b"one")
    assert bench.staged() == []
    elsewhere = pytest.raises(CacheError, match=r"mul was built by another machine, .*: it was not in the cache")
    with elsewhere, bench.store.building(keys.make_key("module", ("name", "mul"))) as building:
        building.take()


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("m.so", damage) for damage in (b"O", b"ONE", "the same size and time", "none", "a folder")),
        *(("manifest.json", damage) for damage in (b"\xff{garbage", b"", "cut", "none", "a folder", "a link")),
        *(("manifest.json", damage) for damage in ({"schema": 0}, {"digest": keys.make_key("k").digest})),
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


DAY_S = 86_400.0


def build(staging: Path) -> cache.BuildOutput:
    (staging / "m.so").write_bytes(b"x" * 1000)
    return cache.BuildOutput(outputs=("m.so",))


def key(name: str, number: int = 0) -> keys.CacheKey:
    return keys.make_key("module", ("name", name), ("number", str(number)))


KEYS = [*(key("add", number) for number in range(3)), *(key("mul", number) for number in range(2))]


@pytest.fixture
def filled(tmp_path: Path) -> cache.Cache:
    store = cache.Cache(tmp_path / "cache")
    for each in KEYS:
        store.get_or_build(each, build)
    return store


def names(store: cache.Cache) -> str:
    """The first letters of the names of all entries."""
    return "".join(sorted(info.name[0] for info in store.entries()))


def age(store: cache.Cache, wanted: keys.CacheKey, age_s: float = 100 * DAY_S) -> None:
    """Say that an entry was used last so long ago."""
    entry = store.get(wanted)
    assert entry is not None
    os.utime(entry.path / "manifest.json", (time.time() - age_s,) * 2)


def test_entries_are_listed_and_those_of_one_module_cleared(filled: cache.Cache):
    assert names(filled) == "aaamm"
    assert {(info.kind, info.size_bytes, info.is_damaged) for info in filled.entries()} == {("module", 1000, False)}
    assert all(abs(info.last_used_s - time.time()) < 60 for info in filled.entries())
    assert [filled.clear(name) for name in ("add", "add", "no such")] == [3, 0, 0]
    assert (filled.get(key("add")), names(filled)) == (None, "mm")


def test_clearing_all_leaves_foreign_files_and_a_cache_that_works_on(filled: cache.Cache):
    base = filled.root / "kernels-v1"
    fan = next(path for path in base.iterdir() if len(path.name) == 2)
    in_key = next(fan.glob("?" * 64)) / "notes.txt"
    foreign = [in_key, fan / "notes.txt", base / "notes.txt", filled.root / "ab" / "x" / "manifest.json"]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert filled.clear() == 5
    assert sorted(os.listdir(base)) == sorted(["CACHEDIR.TAG", "notes.txt", "staging", fan.name])
    left = {*foreign, base / "CACHEDIR.TAG", in_key.parent.with_name(f"{in_key.parent.name}.lock")}
    assert tree(filled.root) == sorted(str(path.relative_to(filled.root)) for path in left)
    assert filled.get_or_build(key("add"), build).built
    assert names(filled) == "a"


def test_damaged_entries_are_cleared_and_pruned(filled: cache.Cache):
    paths = [Path(info.path) for info in filled.entries()]
    (paths[0] / "manifest.json").write_text("garbage")
    assert sum(info.is_damaged for info in filled.entries()) == 1
    assert filled.prune()
    assert (paths[0].exists(), len(names(filled))) == (False, 4)
    (paths[1] / "manifest.json").unlink()
    assert filled.clear() == 4


@pytest.mark.parametrize(
    ("limit", "left"), [(5000, "aaamm"), (4999, "aam"), (3000, "aam"), (2999, "am"), (1000, "m"), (0, "m")]
)
def test_the_longest_unused_go_until_the_rest_is_small_enough(filled: cache.Cache, limit: int, left: str):
    """What was used in the same minute goes together, and the newest stays."""
    for minutes, each in zip((10, 20, 30, 30), KEYS, strict=False):
        age(filled, each, minutes * 60)
    assert filled.prune(max_size_bytes=limit) == (limit == 5000)
    assert filled.prune(max_size_bytes=limit)
    assert names(filled) == left


def test_what_is_old_goes_in_one_round_which_goes_on_where_the_last_build_left_it(filled: cache.Cache):
    age(filled, KEYS[0])
    assert filled.prune(max_age_days=90)
    assert names(filled) == "aamm"
    for each in KEYS[1:3]:
        age(filled, each)
    calls, later_s = 1, time.time() + 2 * DAY_S
    while not filled.prune(max_age_days=90, patience_s=0, now_s=later_s):
        calls += 1
    assert calls == 1 + len({each.digest[:2] for each in KEYS[1:]})
    assert names(filled) == "mm"


def test_rounds_begin_a_day_apart(filled: cache.Cache):
    now_s = time.time()
    assert filled.prune(max_age_days=90)
    age(filled, key("add"))
    for later_s, left in ((DAY_S / 2, 5), (2 * DAY_S, 4)):
        assert filled.prune(max_age_days=90, now_s=now_s + later_s)
        assert len(names(filled)) == left
    assert filled.prune(max_age_days=90, now_s=now_s), "the clock was set back"


SIZES = ('{"sizes": 3}', '{"sizes": {"x": 1}}', '{"used_before_s": Infinity, "sizes": {"1": Infinity}}')


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0", '{"a": 1}', "[" * 100_000, *SIZES])
def test_a_damaged_note_begins_a_round(filled: cache.Cache, text: str):
    age(filled, key("add"))
    (filled.root / "kernels-v1" / "pruning.json").write_text(text)
    filled.prune(max_age_days=90)
    filled.prune(max_age_days=90)
    assert len(names(filled)) == 4


def test_what_killed_writers_left_goes_when_it_is_old(filled: cache.Cache):
    """Files that had not got their names yet, of a round's progress and of a refreshed manifest."""
    base = filled.root / "kernels-v1"
    entry = next(base.glob("*/*/*/manifest.json")).parent
    old = [base / "pruning.json.0123abcd", entry / "manifest.json.0123abcd"]
    kept = [base / "pruning.json.4567abcd", entry / "notes.json.0123abcd"]
    for path in (*old, *kept):
        path.write_text("half of it")
    for path in (*old, kept[1]):
        os.utime(path, (time.time() - 7200,) * 2)
    assert filled.prune()
    assert [path.exists() for path in (*old, *kept)] == [False, False, True, True]


HERE, ELSEWHERE = "0123456789abcdef.cafecafe.4242.01234567", "0123456789abcdef.beefbeef.4242.01234567"
DEAD_S, ANY_S = publish.DEAD_OWNER_AGE_S, publish.ANY_OWNER_AGE_S


@pytest.mark.parametrize(
    ("owners", "ages", "abandoned"),
    [
        ("dead", ((HERE, DEAD_S + 1), (HERE, ANY_S + 1), (ELSEWHERE, ANY_S + 1)), True),
        ("dead", ((HERE, DEAD_S - 1), (ELSEWHERE, DEAD_S + 1), ("notes", ANY_S + 1)), False),
        ("alive", ((HERE, ANY_S + 1),), True),
        ("alive", ((HERE, DEAD_S + 1),), False),
    ],
)
def test_when_a_staging_folder_is_abandoned(owners: str, ages: tuple[tuple[str, float], ...], abandoned: bool):
    for name, age_s in ages:
        assert publish.is_abandoned(name, age_s, host="cafecafe", is_alive=lambda _: owners == "alive") is abandoned
