"""State of the process that threads share, with turns of a microsecond: none is lost, made twice or read half-made."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any
from unittest.mock import Mock, call

import pytest

from be_runtime import checks
from be_runtime.load.checked_mode import CheckedTargets, Debugging
from be_runtime.load.process import Process
from be_runtime.load.registry import Registry, Target
from be_runtime.store import keys, remote, sharing
from be_toolchain.machine.forks import made_once
from be_toolchain.remote import RemoteSource
from tests.support.artifacts import artifact

THREADS = 16


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Run a function of a number in threads that begin together."""
    barrier = Barrier(THREADS)

    def begin(number: int) -> Any:
        barrier.wait(60)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def add(registry: Registry, *names: str) -> None:
    makers: dict[str, Callable[[], object]] = {name: Mock(return_value=f"handler of {name}") for name in names}
    registry.add([Target(name, "cpu", "content") for name in names], makers)


def test_a_handler_is_made_without_the_registrys_lock():
    """Its maker may wait for a thread that adds targets: checked mode does, while it holds a lock of its own."""
    jax = Mock()
    registry = Registry(jax)

    def make() -> str:
        thread = Thread(target=add, args=(registry, "m.f", "other.g"), daemon=True)
        thread.start()
        thread.join(30)
        return "late"

    registry.add([Target("m.f", "cpu", "content")], {"m.f": make})
    assert registry.names() == ("m.f", "other.g")
    assert jax.call_args_list == [call(name, f"handler of {name}", "cpu") for name in ("m.f", "other.g")]


def test_targets_are_listed_while_a_thread_adds_some():
    registry, is_over = Registry(Mock()), Event()

    def work(number: int) -> None:
        while number < 4 and not is_over.is_set():
            found = registry.get("m.f0")
            assert len(registry.names()) >= len(found)
        if number == 4:
            for each in range(1000):
                add(registry, f"m.f{each}")
            is_over.set()

    at_once(work)
    assert len(registry.names()) == 1000


def test_a_load_waits_until_another_thread_has_begun_to_check(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_DEBUG", "1")
    begun: list[checks.Checks | None] = []

    class Slow(Process):
        def debug(self, chosen: checks.Checks | None) -> Any:
            time.sleep(0.05)
            begun.append(chosen)

    process = Slow()
    assert at_once(lambda _: (process.settings().debug, len(begun))) == [("all", 1)] * THREADS


def test_no_checked_mode_is_lost_or_left():
    class Slow(CheckedTargets):
        def set_modes(self, everywhere: Sequence[Debugging]) -> None:
            time.sleep(random.uniform(0, 0.002))  # noqa: S311 - any order may lose one
            super().set_modes(everywhere)

    guards = Slow(Mock(), Registry(Mock()))
    with ThreadPoolExecutor(1) as pool:  # a mode belongs to the thread that begins it
        kept = pool.submit(guards.start, checks.parse_checks("guards")).result()

        def work(_: int) -> None:
            for _ in range(5):
                guards.start(checks.parse_checks("inputs")).end()

        at_once(work)
        assert checks.STATE.everywhere is kept.mode
        pool.submit(kept.end).result()
    assert checks.STATE.everywhere is None


def test_a_link_to_a_remote_cache_is_one_and_no_upload_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    registered = Mock()
    monkeypatch.setattr("atexit.register", registered)
    source = RemoteSource("http://localhost:9/threads", "BE_REMOTE_CACHE", "threads")
    key = keys.make_key("module", ("name", "add"))
    links = at_once(lambda _: remote._link(source.url, source.named_by, 1.0))  # noqa: SLF001
    assert len(set(map(id, links))) == 1
    may_end, carrier = Event(), Mock()
    carrier.put = lambda *_: may_end.wait(60)
    link = links[0]._replace(carrier=carrier)
    cache = remote.RemoteCache(source, link, Mock(), writes=True, timeout_s=60)
    at_once(lambda _: cache.put(sharing.Query(key, "add", lambda: False), artifact(key)))
    assert len(link.uploads) == THREADS
    may_end.set()
    link.finish(60)
    assert registered.call_count == 1


def test_threads_that_ask_at_once_get_one_object():
    @made_once(4)
    def made(name: str) -> list[str]:
        time.sleep(0.01)
        return [name]

    found = at_once(lambda number: made("ab"[number % 2]))
    assert [len({id(each) for each in found if each == [name]}) for name in "ab"] == [1, 1]
