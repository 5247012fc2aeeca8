from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Recorded, Store, make_key
from be_runtime.cache.folder.layout import variant_name
from be_runtime.cache.publish import GRACE_NS, superseded
from be_runtime.errors import CacheError

Tree = Callable[[Path], list[str]]


def test_nothing_is_made_before_the_first_build(store: Store, key: CacheKey):
    assert store.get(key) is None
    assert list(store.entries()) == []
    assert store.clear() == 0
    assert store.prune()
    assert store.explain(key) == ()
    assert not store.root.exists()


def test_a_miss_builds_and_then_hits(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    first = store.get_or_build(key, build)
    assert first.built
    assert first.reason == "it was not in the cache"
    assert first.output("m.so").read_bytes() == b"one"
    second = store.get_or_build(key, build)
    assert (second.built, second.reason, second.path) == (False, "", first.path)
    assert second.manifest == first.manifest
    assert build.calls == 1  # type: ignore[attr-defined]
    assert store.get(key) == second


def test_only_outputs_and_records_stay(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput], tree: Tree):
    entry = store.get_or_build(key, build)
    assert tree(entry.path) == ["key.json", "m.so", "manifest.json"]
    assert list((store.root / "kernels-v1" / "staging").iterdir()) == []
    assert CacheKey.from_json((entry.path / "key.json").read_text()) == key


def test_an_output_that_was_not_made_has_no_path(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    with pytest.raises(KeyError):
        store.get_or_build(key, build).output("other.so")


def test_outputs_may_be_in_folders_and_hard_linked(store: Store, key: CacheKey, tmp_path: Path):
    shared = tmp_path / "of-another-cache.o"
    shared.write_bytes(b"object")
    mode = stat.S_IMODE(shared.stat().st_mode)

    def build(staging: Path) -> BuildOutput:
        (staging / "a" / "b").mkdir(parents=True)
        (staging / "a" / "b" / "x.bin").write_bytes(b"x")
        os.link(shared, staging / "y.o")
        return BuildOutput(outputs=("a/b/x.bin", "y.o", "y.o"))

    entry = store.get_or_build(key, build)
    assert entry.output("a/b/x.bin").read_bytes() == b"x"
    assert entry.output("y.o").read_bytes() == b"object"
    assert len(entry.manifest.outputs.paths) == 2
    assert not entry.output("y.o").samefile(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    assert store.get(key) is not None


def test_dependencies_inside_the_staging_folder_are_left_out(store: Store, key: CacheKey, header: Path):
    def build(staging: Path) -> BuildOutput:
        (staging / "wrapper.cc").write_text("generated")
        (staging / "m.so").write_bytes(b"x")
        dependencies = (staging / "wrapper.cc", Path("wrapper.cc"), Path("./wrapper.cc"), header, header)
        return BuildOutput(outputs=("m.so",), dependencies=dependencies)

    entry = store.get_or_build(key, build)
    assert entry.manifest.dependencies.paths == (str(header),)
    assert store.get(key) is not None


def test_force_builds_into_a_new_folder(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    first = store.get_or_build(key, build)
    inode = first.output("m.so").stat().st_ino
    second = store.get_or_build(key, build, force=True)
    assert second.built
    assert second.reason == "a rebuild was requested"
    assert second.path != first.path
    assert first.output("m.so").stat().st_ino == inode
    hit = store.get(key)
    assert hit is not None
    assert hit.path == second.path


def test_entries_of_one_key_are_bounded_once_nobody_can_be_about_to_load_them():
    folders = [f"/k/{variant_name(number * GRACE_NS, '00000000')}" for number in range(9, 0, -1)]
    assert superseded(folders, 6 * GRACE_NS + 1) == folders[4:]
    assert superseded(folders, 6 * GRACE_NS) == folders[5:]
    assert superseded(folders[:4], 100 * GRACE_NS) == []


def test_superseded_entries_go_at_the_next_build(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    entries = [store.get_or_build(key, build, force=True) for _ in range(6)]
    assert all(entry.path.exists() for entry in entries)
    aged = [entry.path.rename(entry.path.with_name(variant_name(n, "0" * 8))) for n, entry in enumerate(entries[:3])]
    store.get_or_build(key, build, force=True)
    assert [path.exists() for path in aged] == [False] * 3
    assert all(entry.path.exists() for entry in entries[3:])


def test_keys_and_kinds_do_not_share_entries(store: Store, build: Callable[[Path], BuildOutput]):
    keys = [make_key("module", ("name", "a")), make_key("object", ("name", "a")), make_key("module", ("name", "b"))]
    assert all(store.get_or_build(key, build).built for key in keys)
    assert len({store.get_or_build(key, build).path for key in keys}) == 3


@pytest.mark.parametrize("error", [ValueError("bad source"), OSError(13, "Permission denied"), KeyboardInterrupt()])
def test_a_failed_build_leaves_the_old_state(
    store: Store, key: CacheKey, build: Callable[[Path], BuildOutput], error: BaseException, tree: Tree
):
    store.get_or_build(key, build)
    before = tree(store.root)

    def fail(staging: Path) -> BuildOutput:
        (staging / "half.o").write_bytes(b"half")
        raise error

    with pytest.raises(type(error)) as caught:
        store.get_or_build(key, fail, force=True)
    assert caught.value is error
    assert tree(store.root) == before
    assert list((store.root / "kernels-v1" / "staging").iterdir()) == []
    assert store.get(key) is not None
    assert store.get_or_build(key, build, force=True, lock_timeout_s=1).built


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "no outputs"),
        (("m.so", "missing.so"), "did not make its output 'missing.so'"),
        (("../m.so",), "not a plain relative path"),
        (("/etc/passwd",), "not a plain relative path"),
        (("a/../m.so",), "not a plain relative path"),
        (("",), "not a plain relative path"),
        ((".",), "not a plain relative path"),
        (("a\0b",), "not a plain relative path"),
        (("manifest.json",), "keeps for itself"),
        (("key.json",), "keeps for itself"),
        (("folder",), "not a regular file"),
        (("link.so",), "not a regular file"),
    ],
)
def test_bad_outputs_are_refused(store: Store, key: CacheKey, names: tuple[str, ...], message: str):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        (staging / "folder").mkdir()
        (staging / "link.so").symlink_to("/etc/passwd")
        return BuildOutput(outputs=names)

    with pytest.raises(CacheError, match=message):
        store.get_or_build(key, build)
    assert store.get(key) is None
    assert list((store.root / "kernels-v1" / "staging").iterdir()) == []


def test_folders_and_files_are_the_users_alone(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    old = os.umask(0)
    try:
        store.get_or_build(key, build)
    finally:
        os.umask(old)
    for path in (store.root, *store.root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_store_in_an_impossible_place_says_so(tmp_path: Path, key: CacheKey, build: Callable[[Path], BuildOutput]):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "cache")
    assert store.get(key) is None
    with pytest.raises(CacheError, match="file/cache") as caught:
        store.get_or_build(key, build)
    assert any("BE_CACHE_DIR" in hint for hint in caught.value.hints)


def test_a_full_or_vanished_cache_is_a_cache_error(store: Store, key: CacheKey, tmp_path: Path):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        store.root.rename(tmp_path / "elsewhere")
        return BuildOutput(outputs=("m.so",))

    with pytest.raises(CacheError):
        store.get_or_build(key, build)


def test_the_cache_cleared_during_a_build_does_not_matter(store: Store, key: CacheKey, header: Path):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        store.clear()
        store.prune(max_size_bytes=0)
        return BuildOutput(outputs=("m.so",), dependencies=(header,))

    assert store.get_or_build(key, build).built
    assert store.get(key) is not None


def test_explain_compares_with_the_newest_of_the_name(store: Store, build: Callable[[Path], BuildOutput]):
    store.get_or_build(make_key("module", ("name", "add"), ("flags", ("-O1",))), build)
    store.get_or_build(make_key("module", ("name", "add"), ("flags", ("-O2",))), build)
    store.get_or_build(make_key("module", ("name", "mul"), ("flags", ("-O9",))), build)
    new = make_key("module", ("name", "add"), ("flags", ("-O3",)))
    assert store.explain(new) == ("flags: removed '-O2'; added '-O3'",)
    assert store.explain(make_key("module", ("name", "other"))) == ()


def test_explain_believes_no_damaged_key(store: Store, build: Callable[[Path], BuildOutput]):
    entry = store.get_or_build(make_key("module", ("name", "add"), ("flags", ("-O1",))), build)
    path = entry.path / "key.json"
    path.write_text(path.read_text().replace("-O1", "-O0"))
    assert store.explain(make_key("module", ("name", "add"), ("flags", ("-O3",)))) == ()


def test_long_unused_entries_are_marked_as_used(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    entry = store.get_or_build(key, build)
    os.utime(entry.path / "manifest.json", (1e9, 1e9))
    assert store.get(key) is not None
    assert (entry.path / "manifest.json").stat().st_mtime > 1.5e9


def test_an_entry_says_who_made_it_how_long_that_took_and_why(
    store: Store, key: CacheKey, build: Callable[[Path], BuildOutput], header: Path
):
    def slow(staging: Path) -> BuildOutput:
        time.sleep(0.05)
        return build(staging)

    made = store.get_or_build(key, slow).manifest.made
    assert (made.host, made.reason, made.source) == (os.uname().nodename, "it was not in the cache", "")
    assert 0.05 <= made.seconds < 5
    header.write_bytes(b"two")
    again = store.get_or_build(key, lambda staging: build(staging)._replace(source="process 0 of the job"))
    assert again.manifest.made.reason == f"{header} changed"
    assert again.manifest.made.source == "process 0 of the job"


def test_the_time_of_a_build_begins_where_its_records_do(store: Store, key: CacheKey):
    def hand_over(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"m")
        now_ns = time.time_ns()
        return BuildOutput(outputs=("m.so",), recorded=Recorded(now_ns - 7_000_000_000, now_ns, {}))

    assert 6.9 < store.get_or_build(key, hand_over).manifest.made.seconds < 12


def test_a_build_may_find_that_the_entry_has_come(
    store: Store, key: CacheKey, build: Callable[[Path], BuildOutput], tmp_path: Path, tree: Tree
):
    other = Store(tmp_path / "other")
    other.get_or_build(key, build)

    def come(_staging: Path) -> None:
        shutil.copytree(
            other.root / "kernels-v1" / key.digest[:2], store.root / "kernels-v1" / key.digest[:2], dirs_exist_ok=True
        )

    entry = store.get_or_build(key, come)
    assert (entry.built, entry.reason, entry.output("m.so").read_bytes()) == (False, "", b"one")
    assert not [name for name in tree(store.root) if "staging" in name]


def test_an_entry_that_has_not_come_is_an_error(store: Store, key: CacheKey):
    with pytest.raises(CacheError, match=r"add was built by another machine, .*: it was not in the cache"):
        store.get_or_build(key, lambda _: None)
