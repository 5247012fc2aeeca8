"""What listing, clearing and pruning remove, and what they leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_runtime.cache.upkeep.staging import ANY_OWNER_AGE_S, DEAD_OWNER_AGE_S, is_abandoned
from tests.unit.be_runtime.cache.bench import tree

DAY_S = 86_400.0


def build(staging: Path) -> BuildOutput:
    (staging / "m.so").write_bytes(b"x" * 1000)
    return BuildOutput(outputs=("m.so",))


def key(name: str, number: int = 0) -> CacheKey:
    return make_key("module", ("name", name), ("number", str(number)))


KEYS = [*(key("add", number) for number in range(3)), *(key("mul", number) for number in range(2))]


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    store = Store(tmp_path / "cache")
    for each in KEYS:
        store.get_or_build(each, build)
    return store


def names(store: Store) -> str:
    """The first letters of the names of all entries."""
    return "".join(sorted(info.name[0] for info in store.entries()))


def age(store: Store, wanted: CacheKey, age_s: float = 100 * DAY_S) -> None:
    """Say that an entry was used last so long ago."""
    entry = store.get(wanted)
    assert entry is not None
    os.utime(entry.path / "manifest.json", (time.time() - age_s,) * 2)


def test_entries_are_listed_and_those_of_one_module_cleared(filled: Store):
    assert names(filled) == "aaamm"
    assert {(info.kind, info.size_bytes, info.is_damaged) for info in filled.entries()} == {("module", 1000, False)}
    assert all(abs(info.last_used_s - time.time()) < 60 for info in filled.entries())
    assert [filled.clear(name) for name in ("add", "add", "no such")] == [3, 0, 0]
    assert (filled.get(key("add")), names(filled)) == (None, "mm")


def test_clearing_all_leaves_foreign_files_and_a_cache_that_works_on(filled: Store):
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
    assert list(filled.entries()) == []
    assert filled.get_or_build(key("add"), build).built
    assert filled.get(key("add")) is not None


def test_damaged_entries_are_cleared_and_pruned(filled: Store):
    paths = [Path(info.path) for info in filled.entries()]
    (paths[0] / "manifest.json").write_text("garbage")
    assert sum(info.is_damaged for info in filled.entries()) == 1
    assert filled.prune()
    assert not paths[0].exists()
    assert len(names(filled)) == 4
    (paths[1] / "manifest.json").unlink()
    assert filled.clear() == 4


@pytest.mark.parametrize(
    ("limit", "left"), [(5000, "aaamm"), (4999, "aam"), (3000, "aam"), (2999, "am"), (1000, "m"), (0, "m")]
)
def test_the_longest_unused_go_until_the_rest_is_small_enough(filled: Store, limit: int, left: str):
    """What was used in the same minute goes together, and the newest stays."""
    for minutes, each in zip((10, 20, 30, 30), KEYS, strict=False):
        age(filled, each, minutes * 60)
    assert filled.prune(max_size_bytes=limit) == (limit == 5000)
    assert filled.prune(max_size_bytes=limit)
    assert names(filled) == left


def test_what_is_old_goes_in_one_round_which_goes_on_where_the_last_build_left_it(filled: Store):
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


def test_rounds_begin_a_day_apart(filled: Store):
    now_s = time.time()
    assert filled.prune(max_age_days=90)
    age(filled, key("add"))
    for later_s, left in ((DAY_S / 2, 5), (2 * DAY_S, 4)):
        assert filled.prune(max_age_days=90, now_s=now_s + later_s)
        assert len(names(filled)) == left
    assert filled.prune(max_age_days=90, now_s=now_s), "the clock was set back"


SIZES = ('{"sizes": 3}', '{"sizes": {"x": 1}}', '{"used_before_s": Infinity, "sizes": {"1": Infinity}}')


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0", '{"a": 1}', "[" * 100_000, *SIZES])
def test_a_damaged_note_begins_a_round(filled: Store, text: str):
    age(filled, key("add"))
    (filled.root / "kernels-v1" / "pruning.json").write_text(text)
    filled.prune(max_age_days=90)
    filled.prune(max_age_days=90)
    assert len(names(filled)) == 4


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


HERE, ELSEWHERE = "0123456789abcdef.cafecafe.4242.01234567", "0123456789abcdef.beefbeef.4242.01234567"
DEAD_S, ANY_S = DEAD_OWNER_AGE_S, ANY_OWNER_AGE_S


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
        assert is_abandoned(name, age_s, host="cafecafe", is_alive=lambda _: owners == "alive") is abandoned
