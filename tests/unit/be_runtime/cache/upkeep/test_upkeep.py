from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_runtime.cache.upkeep.staging import ANY_OWNER_AGE_S, DEAD_OWNER_AGE_S, is_abandoned

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


def _names(store: Store) -> list[str]:
    return sorted(info.name for info in store.entries())


def _used(store: Store, key: CacheKey, when_s: float) -> None:
    """Say when an entry was used last."""
    entry = store.get(key)
    assert entry is not None
    os.utime(entry.path / "manifest.json", (when_s,) * 2)


def test_damaged_entries_are_cleared_and_pruned(filled: Store):
    paths = [Path(info.path) for info in filled.entries()]
    (paths[0] / "manifest.json").write_text("garbage")
    assert sum(info.is_damaged for info in filled.entries()) == 1
    assert filled.prune()
    assert not paths[0].exists()
    assert len(_names(filled)) == 4
    (paths[1] / "manifest.json").unlink()
    assert filled.clear() == 4


def test_what_is_old_goes_in_one_round(filled: Store):
    _used(filled, _key("add", 0), time.time() - 100 * DAY_S)
    assert filled.prune(max_age_days=90)
    assert _names(filled) == ["add", "add", "mul", "mul"]


@pytest.mark.parametrize(
    ("limit", "left"), [(5000, "aaamm"), (4999, "aam"), (3000, "aam"), (2999, "am"), (1000, "m"), (0, "m")]
)
def test_the_longest_unused_go_until_the_rest_is_small_enough(filled: Store, limit: int, left: str):
    """What was used in the same minute goes together, and the newest stays."""
    now_s = time.time()
    for age_min, key in enumerate([_key("add", 0), _key("add", 1), _key("add", 2), _key("mul", 0)]):
        _used(filled, key, now_s - 60 * min(age_min + 1, 3) * 10)
    assert filled.prune(max_size_bytes=limit) == (limit == 5000)
    assert filled.prune(max_size_bytes=limit)
    assert "".join(name[0] for name in _names(filled)) == left


def test_a_round_goes_on_where_the_last_build_left_it(filled: Store):
    for number in range(3):
        _used(filled, _key("add", number), time.time() - 100 * DAY_S)
    calls = 1
    while not filled.prune(max_age_days=90, patience_s=0):
        calls += 1
    keys = [_key(name, number) for name, count in (("add", 3), ("mul", 2)) for number in range(count)]
    assert calls == 1 + len({key.digest[:2] for key in keys})
    assert _names(filled) == ["mul", "mul"]


def test_rounds_begin_a_day_apart(filled: Store):
    now_s = time.time()
    assert filled.prune(max_age_days=90)
    _used(filled, _key("add"), now_s - 100 * DAY_S)
    for later_s, left in ((DAY_S / 2, 5), (2 * DAY_S, 4)):
        assert filled.prune(max_age_days=90, now_s=now_s + later_s)
        assert len(_names(filled)) == left
    assert filled.prune(max_age_days=90, now_s=now_s), "the clock was set back"


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"sizes": 3}', '{"sizes": {"x": 1}}', "\0", '{"a": 1}', "[" * 100_000),
        '{"used_before_s": Infinity, "sizes": {"1": Infinity}}',
    ],
)
def test_a_damaged_note_begins_a_round(filled: Store, text: str):
    _used(filled, _key("add"), time.time() - 100 * DAY_S)
    (filled.root / "kernels-v1" / "pruning.json").write_text(text)
    filled.prune(max_age_days=90)
    filled.prune(max_age_days=90)
    assert len(_names(filled)) == 4


def test_what_killed_writers_left_goes_when_it_is_old(filled: Store):
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
