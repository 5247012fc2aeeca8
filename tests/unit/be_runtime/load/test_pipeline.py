"""How what a build left in the cache is used while other processes use the cache too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, Entry, Store, make_key
from be_runtime.errors import CacheError, LoadError
from be_runtime.load.find_or_build import use_entry
from be_runtime.load.registry import Registry
from be_runtime.load.session import Session
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem

KEY = make_key("module", ("name", "kernels"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(
        system=LocalSystem(),
        settings=Settings.from_environ({}),
        cache=Store(tmp_path / "cache"),
        module_store=Store(tmp_path / "cache"),
        record_dir=tmp_path / "cache" / "toolchain",
        registry=Registry(lambda name, handler, platform: None),
    )


def build(staging: Path) -> BuildOutput:
    (staging / "text").write_text("made")
    return BuildOutput(outputs=("text",))


def use_built(session: Session, use: Callable[[Entry], str], *, force: bool = False) -> str:
    return use_entry(lambda: session.module_store.get_or_build(KEY, build, force=force), use, session)


def read(entry: Entry) -> str:
    return entry.output("text").read_text()


def test_an_entry_that_another_process_twice_removes_before_it_is_read_is_built_again(session: Session):
    built = []

    def read_too_late(entry: Entry) -> str:
        built.append(entry.built)
        if len(built) <= 2:
            session.module_store.clear()
        return read(entry)

    assert use_built(session, read_too_late) == "made"
    assert built == [True, True, True]


@pytest.mark.parametrize("error", [LoadError("no such symbol"), FileNotFoundError("of another's")])
def test_what_fails_while_its_entry_is_there_is_not_tried_again(session: Session, error: Exception):
    used = []

    def fail(entry: Entry) -> str:
        used.append(entry)
        raise error

    with pytest.raises(type(error)):
        use_built(session, fail)
    assert len(used) == 1


@pytest.mark.parametrize("error", [KeyError("images.json"), LoadError("file too short"), RecursionError()])
def test_what_came_from_elsewhere_and_can_not_be_used_is_built_here_once(
    session: Session, error: Exception, capsys: pytest.CaptureFixture[str]
):
    def use(entry: Entry) -> str:
        if entry.manifest.made.source:
            raise error
        return read(entry)

    def fetched() -> Entry:
        return session.module_store.get_or_build(KEY, lambda folder: build(folder)._replace(source="a server"))

    def anew() -> Entry:
        return session.module_store.get_or_build(KEY, build, force=True)

    assert [use_entry(fetched, use, session, anew) for _ in range(2)] == ["made", "made"]
    assert capsys.readouterr().err.count("the entry from a server can't be used, so it is built here") == 1


def test_an_entry_that_is_removed_again_and_again_is_the_caches_error(session: Session):
    def read_too_late(entry: Entry) -> str:
        session.module_store.clear()
        return read(entry)

    with pytest.raises(CacheError, match="was removed before it was loaded, 5 times"):
        use_built(session, read_too_late)


def test_a_build_keeps_the_cache_and_what_it_holds_of_the_toolchain_within_the_limits(session: Session):
    def large(staging: Path) -> BuildOutput:
        (staging / "large").touch()
        os.truncate(staging / "large", 2 * 2**20)
        return BuildOutput(outputs=("large",))

    both = (session.cache, session.toolchain_store)
    for store in both:
        old = store.get_or_build(make_key("module", ("name", "old")), large)
        os.utime(old.path / "manifest.json", (time.time() - 600,) * 2)
        store.get_or_build(make_key("module", ("name", "new")), build)
    limited = session._replace(settings=session.settings._replace(cache_max_size_mib=1))
    for _ in range(2):  # one finds out how large the cache is, the next removes what is too much
        use_built(limited, read, force=True)
    names = [sorted({info.name for info in store.entries()}) for store in both]
    assert names == [["kernels", "new"], ["new"]]


def test_a_cache_that_cant_be_pruned_fails_no_load(session: Session):
    session.module_store.get_or_build(KEY, build)
    (session.module_store.root / "kernels-v1" / "pruning.json").mkdir()
    assert use_built(session, read, force=True) == "made"
