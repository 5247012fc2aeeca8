"""Each way an entry can be broken: it is built again, and nothing else happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Entry, Store, make_key
from be_toolchain.machine.sealed_json import seal, unseal


def _truncate_output(entry: Entry) -> None:
    os.truncate(entry.output("m.so"), 1)


def _alter_output(entry: Entry) -> None:
    entry.output("m.so").write_bytes(b"ONE")


def _alter_output_and_restore_its_time(entry: Entry) -> None:
    path = entry.output("m.so")
    before = path.stat()
    path.write_bytes(b"ONE")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _remove_output(entry: Entry) -> None:
    entry.output("m.so").unlink()


def _output_is_a_folder(entry: Entry) -> None:
    entry.output("m.so").unlink()
    entry.output("m.so").mkdir()


def _remove_manifest(entry: Entry) -> None:
    (entry.path / "manifest.json").unlink()


def _garbage_manifest(entry: Entry) -> None:
    (entry.path / "manifest.json").write_bytes(b"\xff{garbage")


def _truncated_manifest(entry: Entry) -> None:
    path = entry.path / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


def _empty_manifest(entry: Entry) -> None:
    (entry.path / "manifest.json").write_bytes(b"")


def _manifest_of_another_schema(entry: Entry) -> None:
    path = entry.path / "manifest.json"
    path.write_text(seal({**unseal(path.read_text()), "schema": 0}))


def _manifest_of_another_key(entry: Entry) -> None:
    path = entry.path / "manifest.json"
    path.write_text(seal({**unseal(path.read_text()), "digest": make_key("k").digest}))


def _manifest_is_a_link(entry: Entry) -> None:
    path = entry.path / "manifest.json"
    path.rename(entry.path / "moved.json")
    path.symlink_to(entry.path / "moved.json")


def _manifest_is_a_folder(entry: Entry) -> None:
    (entry.path / "manifest.json").unlink()
    (entry.path / "manifest.json").mkdir()


def _empty_folder(entry: Entry) -> None:
    for path in entry.path.iterdir():
        path.unlink()


DAMAGES = (
    _truncate_output,
    _alter_output,
    _alter_output_and_restore_its_time,
    _remove_output,
    _output_is_a_folder,
    _remove_manifest,
    _garbage_manifest,
    _truncated_manifest,
    _empty_manifest,
    _manifest_of_another_schema,
    _manifest_of_another_key,
    _manifest_is_a_link,
    _manifest_is_a_folder,
    _empty_folder,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_built_again_and_removed(
    store: Store, key: CacheKey, build: Callable[[Path], BuildOutput], damage: Callable[[Entry], None]
):
    broken = store.get_or_build(key, build)
    damage(broken)
    assert store.get(key) is None
    entry = store.get_or_build(key, build)
    assert entry.built
    assert "damaged" in entry.reason
    assert entry.output("m.so").read_bytes() == b"one"
    assert not broken.path.exists()
    assert store.get(key) is not None


def test_a_touched_or_copied_output_is_still_good(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    entry = store.get_or_build(key, build)
    os.utime(entry.output("m.so"), (1e9, 1e9))
    hit = store.get(key)
    assert hit is not None
    assert hit.manifest.outputs.mtimes_ns[0] == 10**18


def test_foreign_names_in_a_keys_folder_are_ignored(store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]):
    entry = store.get_or_build(key, build)
    (entry.path.parent / "notes.txt").write_text("mine")
    (entry.path.parent / "zzz").mkdir()
    assert store.get(key) is not None
    store.get_or_build(key, build, force=True)
    assert (entry.path.parent / "notes.txt").exists()


def test_a_damaged_entry_does_not_hide_an_older_good_one(
    store: Store, key: CacheKey, build: Callable[[Path], BuildOutput]
):
    good = store.get_or_build(key, build)
    _garbage_manifest(store.get_or_build(key, build, force=True))
    hit = store.get(key)
    assert hit is not None
    assert hit.path == good.path
