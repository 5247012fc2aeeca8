from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_runtime.cache.staging import ANY_OWNER_AGE_S, DEAD_OWNER_AGE_S, is_abandoned
from be_runtime.cache.upkeep import EntryInfo, choose_doomed

Tree = Callable[[Path], list[str]]
DAY_S = 86_400.0


def _build(staging: Path) -> BuildOutput:
    (staging / "m.so").write_bytes(b"x" * 1000)
    return BuildOutput(outputs=("m.so",))


def _key(name: str, number: int = 0) -> CacheKey:
    return make_key("module", ("name", name), ("number", str(number)))


@pytest.fixture
def filled(store: Store) -> Store:
    for name, count in (("add", 3), ("mul", 2)):
        for number in range(count):
            store.get_or_build(_key(name, number), _build)
    return store


def test_entries_are_listed(filled: Store):
    entries = list(filled.entries())
    assert sorted(info.name for info in entries) == ["add"] * 3 + ["mul"] * 2
    assert {info.kind for info in entries} == {"module"}
    assert {info.size_bytes for info in entries} == {1000}
    assert all(abs(info.last_used_s - time.time()) < 60 for info in entries)
    assert not any(info.is_damaged for info in entries)


def test_one_modules_entries_are_cleared(filled: Store):
    assert filled.clear("add") == 3
    assert filled.clear("add") == 0
    assert filled.clear("no such") == 0
    assert filled.get(_key("add")) is None
    assert filled.get(_key("mul")) is not None


def test_clearing_all_leaves_foreign_files_and_no_others(filled: Store, tree: Tree):
    base = filled.root / "kernels-v1"
    fan = next(path for path in base.iterdir() if len(path.name) == 2)
    foreign = ["notes.txt", "kernels-v1/notes.txt", f"kernels-v1/{fan.name}/notes.txt", "ab/x/manifest.json"]
    for name in foreign:
        (filled.root / name).parent.mkdir(parents=True, exist_ok=True)
        (filled.root / name).write_text("mine")
    in_key = next(fan.glob("?" * 64)) / "notes.txt"
    in_key.write_text("mine")
    assert filled.clear() == 5
    left = {*foreign, str(in_key.relative_to(filled.root)), "kernels-v1/CACHEDIR.TAG"}
    left.add(f"{in_key.parent.relative_to(filled.root)}.lock")
    assert set(tree(filled.root)) == left
    assert list(filled.entries()) == []


def test_a_cleared_cache_works_on(filled: Store):
    filled.clear()
    assert [path.name for path in sorted((filled.root / "kernels-v1").iterdir())] == ["CACHEDIR.TAG", "staging"]
    assert filled.get_or_build(_key("add"), _build).built
    assert filled.get(_key("add")) is not None


def test_damaged_entries_are_cleared_and_pruned(filled: Store):
    paths = [Path(info.path) for info in filled.entries()]
    (paths[0] / "manifest.json").write_text("garbage")
    assert sum(info.is_damaged for info in filled.entries()) == 1
    report = filled.prune()
    assert (report.removed, report.kept) == (1, 4)
    (paths[1] / "manifest.json").unlink()
    assert filled.clear() == 4


def test_pruning_by_age_and_size(filled: Store):
    old, used = filled.get(_key("add", 0)), filled.get(_key("mul", 0))
    assert old is not None
    assert used is not None
    os.utime(old.path / "manifest.json", (time.time() - 100 * DAY_S,) * 2)
    report = filled.prune(max_age_days=90)
    assert (report.removed, report.freed_bytes, report.kept, report.kept_bytes) == (1, 1000, 4, 4000)
    assert not old.path.exists()
    os.utime(used.path / "manifest.json", (time.time() + 60,) * 2)
    report = filled.prune(max_size_bytes=1999)
    assert (report.removed, report.kept_bytes) == (3, 1000)
    assert used.path.exists()
    assert filled.prune(max_size_bytes=1000).removed == 0


def test_pruning_is_due_once_a_day(filled: Store):
    assert filled.prune_if_due(max_size_bytes=0) is not None
    filled.get_or_build(_key("add"), _build)
    assert filled.prune_if_due(max_size_bytes=0) is None
    os.utime(filled.root / "kernels-v1" / "last-prune", (time.time() - 2 * DAY_S,) * 2)
    report = filled.prune_if_due(max_size_bytes=0)
    assert report is not None
    assert report.removed == 1


def _info(name: str, *, used_s: float, size: int = 10, damaged: bool = False) -> EntryInfo:
    return EntryInfo(path=name, digest="", size_bytes=size, last_used_s=used_s, is_damaged=damaged)


@pytest.mark.parametrize(
    ("max_size_bytes", "max_age_days", "doomed"),
    [
        (None, None, "d"),
        (None, 5, "da"),
        (None, 0, "dabc"),
        (30, None, "d"),
        (29, None, "da"),
        (10, None, "dab"),
        (0, None, "dabc"),
        (20, 5, "da"),
        (19, 5, "dab"),
    ],
)
def test_what_is_pruned(max_size_bytes: int | None, max_age_days: float | None, doomed: str):
    now_s = 100 * DAY_S
    entries = [_info("c", used_s=now_s - 1), _info("a", used_s=0), _info("b", used_s=now_s - 2)]
    entries.append(_info("d", used_s=now_s, damaged=True))
    found = choose_doomed(entries, max_size_bytes, max_age_days, now_s=now_s)
    assert "".join(info.path for info in found if info.path == "d") == "d"
    assert sorted(info.path for info in found) == sorted(doomed)


NAME = "0123456789abcdef.cafecafe.4242.01234567"


@pytest.mark.parametrize(
    ("name", "age_s", "alive", "abandoned"),
    [
        (NAME, DEAD_OWNER_AGE_S + 1, False, True),
        (NAME, DEAD_OWNER_AGE_S - 1, False, False),
        (NAME, DEAD_OWNER_AGE_S + 1, True, False),
        (NAME, ANY_OWNER_AGE_S + 1, True, True),
        (NAME.replace("cafecafe", "beefbeef"), DEAD_OWNER_AGE_S + 1, False, False),
        (NAME.replace("cafecafe", "beefbeef"), ANY_OWNER_AGE_S + 1, False, True),
        ("notes", ANY_OWNER_AGE_S + 1, False, False),
    ],
)
def test_when_a_staging_folder_is_abandoned(name: str, age_s: float, *, alive: bool, abandoned: bool):
    assert is_abandoned(name, age_s, host="cafecafe", is_alive=lambda _: alive) is abandoned
