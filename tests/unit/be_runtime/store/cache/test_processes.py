"""Locks and real processes: builds at once, killed and forked ones, and what a process does for a hit."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from be_runtime.errors import CacheError
from be_runtime.store.cache import BuildOutput, Entry
from be_runtime.store.folder import lock_file
from be_runtime.store.keys import make_key
from be_runtime.store.lock import key_lock, remove_if_free
from be_toolchain.machine.files import seal, unseal
from tests.support.runtime import run_python
from tests.unit.be_runtime.store.cache.conftest import Bench


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "ab" / "x.lock")


def is_held(path: str) -> bool:
    try:
        with key_lock(path, timeout_s=0):
            return False
    except CacheError:
        return True


def failing(code: int) -> Mock:
    return Mock(side_effect=OSError(code, os.strerror(code)))


def test_the_lock_is_held_in_the_block_alone(lock: str):
    with key_lock(lock):
        assert is_held(lock)
    with pytest.raises(ZeroDivisionError), key_lock(lock):
        raise ZeroDivisionError
    assert not is_held(lock)
    with pytest.raises(CacheError, match="Bad file descriptor"), key_lock(lock, flock=failing(errno.EBADF)):
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock's waits take no time."""
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr("be_runtime.store.lock.time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))


@pytest.mark.usefixtures("clock")
def test_a_long_wait_is_reported_and_names_the_holder(lock: str):
    reports: list[tuple[float, str]] = []
    waiting = key_lock(lock, timeout_s=70, on_wait=lambda *wait: reports.append(wait), holder=lambda: "process 42")
    with key_lock(lock), pytest.raises(CacheError, match=r"waited 70\.0 s for process 42 ") as caught, waiting:
        pass
    assert [(int(waited), who) for waited, who in reports] == [(after, "process 42") for after in (1, 10, 60)]
    assert all(text in f"{caught.value.hints}" for text in (lock, "BE_LOCK_TIMEOUT_S"))


def test_a_lock_on_a_file_that_was_just_removed_is_no_lock(lock: str):
    """Cleared between open and flock: another process would make a new file and lock that."""
    calls = []

    def flock(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            Path(lock).unlink()
        fcntl.flock(descriptor, operation)

    with key_lock(lock, flock=flock):
        assert len(calls) == 2
        assert is_held(lock)


def test_only_a_free_lock_file_is_removed(lock: str):
    with key_lock(lock):
        remove_if_free(lock)
        assert Path(lock).exists()
    for _ in range(2):
        remove_if_free(lock)
        assert not Path(lock).exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EIO])
def test_without_locks_a_build_goes_on(bench: Bench, code: int):
    together = threading.Barrier(4)

    def build(staging: Path) -> BuildOutput:
        together.wait(30)
        return bench.build(staging)

    bench.store = bench.store._replace(flock=failing(code))
    threads = [threading.Thread(target=bench.make, args=(build,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bench.builds, bench.hit().output("m.so").read_bytes()) == (4, b"one")


def test_who_waits_finds_the_entry_though_the_lock_is_held(bench: Bench):
    """A program that forked without Python's knowledge may hold the lock for hours."""
    found: list[Entry] = []
    bench.base.mkdir(parents=True)
    with key_lock(lock_file(str(bench.base), bench.key.digest)):
        waiting = threading.Thread(target=lambda: found.append(bench.make(lock_timeout_s=60)))
        waiting.start()
        made = bench.store._replace(flock=failing(errno.ENOLCK)).get_or_build(bench.key, bench.build)
        waiting.join(60)
    assert [(entry.path, entry.built) for entry in found] == [(made.path, False)]


FORKS = {
    "a child does not keep the lock of a parent that is killed": """
until, end = os.pipe()
parent = os.fork()
if parent == 0:
    with key_lock(lock):
        if os.fork() == 0:
            os.close(end)
            os.read(until, 1)
        os.kill(os.getpid(), 9)
os.waitpid(parent, 0)
with key_lock(lock, timeout_s=5): pass
""",
    "a child that leaves the block does not unlock it": """
with key_lock(lock):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        try:
            with key_lock(lock, timeout_s=0): os._exit(1)
        except CacheError: pass
os._exit(0)
""",
    "locks between threads are free in a child, but for those that the forking thread holds itself": """
process, ours, inside, end = Process(), ThreadLock(), threading.Event(), threading.Event()
def make():
    inside.set()
    end.wait()
    return "slow"
thread = threading.Thread(target=process.only, args=(str, make))
thread.start()
inside.wait()
with ours:
    child = os.fork()
    if child == 0:
        with ours: os._exit(process.only(str, lambda: "quick") != "quick")
assert os.waitpid(child, 0)[1] == 0
end.set()
thread.join()
assert process.only(str, make) == "slow"
""",
    "a fork waits for what another thread imports: in a child the import would never end": """
importing = threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "be_runtime.store.publish":
            importing.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow())
def build(staging):
    (staging / "m.so").write_bytes(b"x")
    return BuildOutput(outputs=("m.so",))
def ask(): return Cache(Path(lock)).get_or_build(make_key("module"), build)
threading.Thread(target=ask).start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    ask()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
}
_FORKING = """
import os, signal, sys, threading, time
from pathlib import Path
from be_runtime.store.cache import BuildOutput, Cache; from be_runtime.store.keys import make_key
from be_runtime.store.lock import key_lock
from be_runtime.errors import CacheError
from be_runtime.load.process import Process
from be_toolchain.machine.forks import ThreadLock
lock = sys.argv[1]
"""


@pytest.mark.parametrize("fact", FORKS)
def test_forks_beside_builds(lock: str, fact: str):
    """See also `tests/faults/test_crowds.py`."""
    os.mkdir(os.path.dirname(lock))
    run_python(_FORKING + FORKS[fact], lock)


_PRELUDE = """
import json, os, sys, time
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.store.cache import BuildOutput, Cache; from be_runtime.store.keys import CacheKey
store, key, log = Cache(Path(sys.argv[2])), CacheKey.from_json(sys.argv[3]), sys.argv[4]
"""

_HANG = """
def build(staging):
    print("building", flush=True)
    sys.stdin.read()
store.get_or_build(key, build)
"""
_TRACE = """
assert store.get(key) is not None
events = []
sys.addaudithook(lambda name, args: events.append([name, str(args[0]) if args else ""]))
assert store.get(key) is not None
seen = [event for event in events if not (event[0] == "open" and event[1].isdecimal())]  # a descriptor's file
print(json.dumps(seen))
"""


def arguments(bench: Bench) -> tuple[str, ...]:
    return (repr(sys.path), str(bench.store.root), bench.key.to_json(), str(bench.folder / "log"))


@pytest.fixture
def hung(bench: Bench) -> Iterator[int]:
    """A process in the middle of a build."""
    argv = (sys.executable, "-c", _PRELUDE + _HANG, *arguments(bench))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"building\n"
        yield process.pid
        process.kill()


@pytest.mark.usefixtures("clock")
def test_a_wait_names_the_process_that_builds_and_another_key_does_not_wait(bench: Bench, hung: int):
    waits: list[str] = []
    with pytest.raises(Exception, match=f"process {hung} "):
        bench.make(lock_timeout_s=1.1, on_wait=lambda _, builder: waits.append(builder))
    assert waits == [f"process {hung}"]
    assert bench.store.get_or_build(make_key("module", ("name", "other")), bench.build, lock_timeout_s=0).built
    (left,) = bench.staged()
    os.utime(bench.base / "staging" / left, (time.time() - 7200,) * 2)
    bench.store.prune()
    assert bench.staged() == [left], "its process lives"


def test_a_hit_lists_one_folder_opens_one_file_and_starts_nothing(bench: Bench):
    """Among any number of entries; the benchmark `warm_many` says how long it takes. Stat proves an old file."""
    entry = bench.make(lambda staging: bench.build(staging, dependencies=(json.__file__,)))
    manifest = unseal((entry.path / "manifest.json").read_text())
    for number in range(100):
        digest = make_key("filler", ("number", str(number))).digest
        folder = shutil.copytree(entry.path, bench.base / digest[:2] / digest / entry.path.name)
        (folder / "manifest.json").write_text(seal({**manifest, "digest": digest}))
    assert sum(1 for _ in bench.store.entries()) == 101
    done = run_python(_PRELUDE + _TRACE, *arguments(bench))
    listed, opened = str(entry.path.parent), str(entry.path / "manifest.json")
    assert json.loads(done.stdout) == [["os.listdir", listed], ["open", opened]]
