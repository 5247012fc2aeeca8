"""Locks: held as long as a block and a process, whoever forks, and done without where there are none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, Entry
from be_runtime.cache.folder.layout import lock_file
from be_runtime.cache.folder.lock import key_lock, remove_if_free
from be_runtime.errors import CacheError
from tests.support.runtime import run_python
from tests.unit.be_runtime.cache.bench import Bench


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "ab" / "x.lock")


def is_held(path: str) -> bool:
    try:
        with key_lock(path, timeout_s=0):
            return False
    except CacheError:
        return True


def without_locks(_descriptor: int, _operation: int) -> None:
    raise OSError(errno.ENOLCK, "no locks available")


def test_the_lock_is_held_in_the_block_alone(lock: str):
    with key_lock(lock):
        assert is_held(lock)
    assert not is_held(lock)
    with pytest.raises(ZeroDivisionError), key_lock(lock):
        raise ZeroDivisionError
    assert not is_held(lock)


def test_a_long_wait_is_reported_after_a_second_and_names_the_holder(lock: str):
    reports: list[tuple[float, str]] = []
    with key_lock(lock), pytest.raises(CacheError, match="process 42") as caught:  # noqa: SIM117
        with key_lock(lock, timeout_s=1.2, on_wait=lambda *wait: reports.append(wait), holder=lambda: "process 42"):
            pass
    assert [(waited >= 1, holder) for waited, holder in reports] == [(True, "process 42")]
    hints = "\n".join(caught.value.hints)
    assert lock in hints
    assert "BE_LOCK_TIMEOUT_S" in hints


def test_a_lock_on_a_file_that_was_just_removed_is_no_lock(lock: str):
    """Cleared between open and flock: another process would make a new file and lock that."""
    calls = 0

    def flock(descriptor: int, operation: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            Path(lock).unlink()
        fcntl.flock(descriptor, operation)

    with key_lock(lock, flock=flock):
        assert calls == 2
        assert is_held(lock)


def test_only_a_free_lock_file_is_removed(lock: str):
    with key_lock(lock):
        remove_if_free(lock)
        assert Path(lock).exists()
    remove_if_free(lock)
    assert not Path(lock).exists()
    remove_if_free(lock)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EIO])
def test_without_locks_a_build_goes_on(bench: Bench, code: int):
    together = threading.Barrier(4)

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    def build(staging: Path) -> BuildOutput:
        together.wait(30)
        return bench.build(staging)

    bench.store = bench.store._replace(flock=flock)
    threads = [threading.Thread(target=bench.make, args=(build,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bench.builds, bench.hit().output("m.so").read_bytes()) == (4, b"one")


def test_a_lock_that_fails_otherwise_is_an_error(lock: str):
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.raises(CacheError, match="Bad file descriptor"), key_lock(lock, flock=flock):
        pass


def test_the_lock_is_not_inherited_by_programs(lock: str):
    found = []
    with key_lock(lock):
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{descriptor}") == lock:
                    found.append(fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)
    assert found == [fcntl.FD_CLOEXEC]


def test_who_waits_finds_the_entry_though_the_lock_is_held(bench: Bench):
    """A program that forked without Python's knowledge may hold the lock for hours."""
    found: list[Entry] = []
    bench.base.mkdir(parents=True)
    with key_lock(lock_file(str(bench.base), bench.key.digest)):
        waiting = threading.Thread(target=lambda: found.append(bench.make(lock_timeout_s=20)))
        waiting.start()
        made = bench.store._replace(flock=without_locks).get_or_build(bench.key, bench.build)
        waiting.join(10)
    assert [(entry.path, entry.built) for entry in found] == [(made.path, False)]


FORKS = {
    "a child does not keep the lock of a parent that is killed": (
        "free",
        """
from be_runtime.cache.folder.lock import key_lock
until, end = os.pipe()
parent = os.fork()
if parent == 0:
    with key_lock(sys.argv[1]):
        child = os.fork()
        if child == 0:
            for descriptor in (1, 2, end): os.close(descriptor)
            os.read(until, 1)
        os.kill(os.getpid(), 9)
os.waitpid(parent, 0)
with key_lock(sys.argv[1], timeout_s=5): print("free")
""",
    ),
    "a child that leaves the block does not unlock it": (
        "held",
        """
from be_runtime.cache.folder.lock import key_lock
from be_runtime.errors import CacheError
with key_lock(sys.argv[1]):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        try:
            with key_lock(sys.argv[1], timeout_s=0): pass
        except CacheError: print("held", flush=True)
os._exit(0)
""",
    ),
    "locks between threads are free in a child, but for those that the forking thread holds itself": (
        "quick\nslow",
        """
from be_toolchain.machine.forks import ThreadLock
from be_runtime.load.process import Process
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
        with ours: print(process.only(str, lambda: "quick"), flush=True)
if child == 0: os._exit(0)
os.waitpid(child, 0)
end.set()
thread.join()
print(process.only(str, make))
""",
    ),
    "a fork waits for what another thread imports: in a child the import would never end": (
        "0",
        """
from pathlib import Path
from be_runtime.cache import BuildOutput, Store, make_key
importing = threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "be_runtime.cache.builder":
            importing.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow())
def build(staging):
    (staging / "m.so").write_bytes(b"x")
    return BuildOutput(outputs=("m.so",))
def ask(): return Store(Path(sys.argv[1])).get_or_build(make_key("module"), build)
thread = threading.Thread(target=ask)
thread.start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    ask()
    os._exit(0)
print(os.waitpid(child, 0)[1])
""",
    ),
}


@pytest.mark.parametrize("fact", FORKS)
def test_forks_beside_builds(tmp_path: Path, fact: str):
    """See also `tests/faults/test_crowds.py`."""
    says, script = FORKS[fact]
    assert run_python(f"import os, signal, sys, threading, time\n{script}", f"{tmp_path}/x").stdout == f"{says}\n"
