from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store
from be_runtime.cache.folder.guard import prepare_base
from be_runtime.errors import CacheError
from tests.support.accounts import open_place

__all__ = ["open_place"]  # a fixture

Build = Callable[[Path], BuildOutput]
OTHER = 54321

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")


def test_a_root_that_is_a_file_is_refused(store: Store, key: CacheKey, build: Build):
    store.root.write_text("")
    with pytest.raises(CacheError, match="is not a folder"):
        store.get(key)
    with pytest.raises(CacheError):
        store.get_or_build(key, build)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_root_that_others_may_write_is_refused_at_every_use(store: Store, key: CacheKey, build: Build, mode: int):
    store.get_or_build(key, build)
    store.root.chmod(mode)
    for use in (
        lambda: store.get(key),
        lambda: store.get_or_build(key, build),
        store.clear,
        store.entries,
        store.prune,
    ):
        with pytest.raises(CacheError, match="can be written by other users") as caught:
            use()
        assert str(store.root) in caught.value.message
        assert any("chmod -R go-w" in hint for hint in caught.value.hints)


def test_a_shared_sticky_root_gets_a_closed_folder_a_user(store: Store, key: CacheKey, build: Build):
    store.root.mkdir()
    store.root.chmod(0o1777)
    entry = store.get_or_build(key, build)
    home = store.root / f"user-{os.geteuid()}"
    assert entry.path.is_relative_to(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert store.get(key) is not None
    assert store.clear() == 1
    home.chmod(0o777)
    with pytest.raises(CacheError, match=str(home)):
        store.get(key)


def test_a_link_planted_in_a_shared_root_is_refused(store: Store, key: CacheKey, build: Build, tmp_path: Path):
    store.root.mkdir()
    store.root.chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    (store.root / f"user-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.get(key),
        lambda: store.get_or_build(key, build),
        lambda: store.get_or_build(key, build, force=True),
    )
    for use in uses:
        with pytest.raises(CacheError, match="is not a folder"):
            use()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_users_own_link_to_a_scratch_disk_is_followed(store: Store, key: CacheKey, build: Build, tmp_path: Path):
    (tmp_path / "scratch").mkdir(mode=0o700)
    store.root.symlink_to(tmp_path / "scratch")
    assert store.get_or_build(key, build).built
    assert store.get(key) is not None
    assert (tmp_path / "scratch" / "kernels-v1").is_dir()


def test_a_link_to_an_open_folder_is_refused(store: Store, key: CacheKey, tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    store.root.symlink_to(tmp_path / "open")
    with pytest.raises(CacheError, match="can be written by other users"):
        store.get(key)


def test_a_root_below_a_folder_that_all_may_write_to_is_refused_before_anything_is_made(
    open_place: Path, key: CacheKey, build: Build
):
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o777)
    store = Store(open_place / "open" / "cache")
    for use in (lambda: store.get(key), lambda: store.get_or_build(key, build), store.clear):
        with pytest.raises(CacheError, match=f"{open_place}/open can be written by other users") as caught:
            use()
        assert any(f"BE_SAFE_FOLDERS={open_place}/open" in hint for hint in caught.value.hints)
    assert not list((open_place / "open").iterdir())
    (open_place / "open").chmod(0o755)
    assert store.get_or_build(key, build).built


def test_the_folders_that_lead_to_a_new_cache_are_the_users_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        prepare_base(str(tmp_path / "a" / "b" / "cache"))
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / part).stat().st_mode) for part in ("a", "a/b", "a/b/cache")} == {0o700}


@needs_root
def test_a_root_of_another_user_is_refused(store: Store, key: CacheKey):
    store.root.mkdir()
    os.chown(store.root, OTHER, OTHER)
    with pytest.raises(CacheError, match=rf"belongs to another user \(uid {OTHER}\)") as caught:
        store.get(key)
    assert any("BE_CACHE_DIR" in hint for hint in caught.value.hints)


@needs_root
def test_a_link_made_by_another_user_is_refused(store: Store, key: CacheKey, tmp_path: Path):
    (tmp_path / "scratch").mkdir(mode=0o700)
    store.root.symlink_to(tmp_path / "scratch")
    os.chown(store.root, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(CacheError, match="symbolic link made by"):
        store.get(key)


@needs_root
def test_a_folder_made_by_another_user_in_a_shared_root_is_refused(store: Store, key: CacheKey):
    store.root.mkdir()
    store.root.chmod(0o1777)
    home = store.root / f"user-{os.geteuid()}"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    with pytest.raises(CacheError, match="belongs to"):
        store.get(key)


@needs_root
@pytest.mark.parametrize(("owner", "mode"), [(OTHER, 0o777), (OTHER, 0o755), (0, 0o777)])
def test_what_was_planted_while_the_root_was_open_is_refused(
    store: Store, key: CacheKey, build: Build, owner: int, mode: int
):
    base = store.root / "kernels-v1"
    base.mkdir(parents=True)
    base.chmod(mode)
    os.chown(base, owner, owner)
    store.root.chmod(0o755)
    for use in (lambda: store.get(key), lambda: store.get_or_build(key, build), store.clear):
        with pytest.raises(CacheError, match=f"{base} (belongs to|can be written by)"):
            use()


@needs_root
def test_a_manifest_of_another_user_is_not_believed(store: Store, key: CacheKey, build: Build):
    entry = store.get_or_build(key, build)
    os.chown(entry.path / "manifest.json", OTHER, OTHER)
    assert store.get(key) is None
