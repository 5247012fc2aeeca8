"""Real processes: many that ask at once, and one that is killed while it builds."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store

# One interpreter imports, then forks: twenty starts of Python would measure Python.
_FLEET = """
import os, sys, time, errno
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.cache import BuildOutput, CacheKey, Store
root, log, count, mode = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
key = CacheKey.from_json(sys.argv[6])
def no_flock(descriptor, operation):
    raise OSError(errno.ENOLCK, "no locks")
store = Store(root, flock=no_flock) if mode == "no locks" else Store(root)
def build(staging):
    with open(log, "a") as file:
        file.write(f"build {os.getpid()}\\n")
    (staging / "m.so").write_bytes(b"content" * 1000)
    if mode == "hang":
        print("building", flush=True)
        time.sleep(60)
    time.sleep(0.2)
    return BuildOutput(outputs=("m.so",))
def ask():
    entry = store.get_or_build(key, build, lock_timeout_s=30)
    return entry.output("m.so").read_bytes() == b"content" * 1000
if count == 1:
    sys.exit(0 if ask() else 1)
start = time.monotonic() + 0.3
children = []
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        time.sleep(max(0.0, start - time.monotonic()))
        status = 1
        try:
            status = 0 if ask() else 2
        finally:
            os._exit(status)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


class Fleet:
    """Processes that ask one store for one key, and the log of their builds."""

    def __init__(self, store: Store, key: CacheKey, log: Path) -> None:
        self._store, self._key, self._log = store, key, log

    def start(self, count: int, mode: str) -> subprocess.Popen[str]:
        """Start them."""
        arguments = [repr(sys.path), str(self._store.root), str(self._log), str(count), mode, self._key.to_json()]
        return subprocess.Popen([sys.executable, "-c", _FLEET, *arguments], text=True, stdout=subprocess.PIPE)

    @property
    def builds(self) -> int:
        """How many builds were begun."""
        return len(self._log.read_text().splitlines())


@pytest.fixture
def fleet(store: Store, key: CacheKey, tmp_path: Path) -> Fleet:
    return Fleet(store, key, tmp_path / "builds.log")


def test_twenty_processes_make_one_build(fleet: Fleet, store: Store, key: CacheKey):
    with fleet.start(20, "locks") as processes:
        processes.communicate(timeout=60)
    assert processes.returncode == 0
    assert fleet.builds == 1
    assert len(list(store.entries())) == 1
    assert store.get(key) is not None


def test_without_locks_twenty_processes_all_get_a_whole_entry(fleet: Fleet, store: Store, key: CacheKey):
    with fleet.start(20, "no locks") as processes:
        processes.communicate(timeout=60)
    assert processes.returncode == 0
    assert fleet.builds == len(list(store.entries()))
    assert store.get(key) is not None


@pytest.fixture
def hung(fleet: Fleet) -> Generator[subprocess.Popen[str]]:
    """A process in the middle of a build."""
    with fleet.start(1, "hang") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        yield process
        process.kill()


def _kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)


def _quick(staging: Path) -> BuildOutput:
    (staging / "m.so").write_bytes(b"content")
    return BuildOutput(outputs=("m.so",))


def test_a_builder_killed_in_the_middle_blocks_nobody(store: Store, key: CacheKey, hung: subprocess.Popen[str]):
    _kill(hung)
    began = time.monotonic()
    assert store.get_or_build(key, _quick, lock_timeout_s=5).built
    assert time.monotonic() - began < 4


def test_what_a_killed_builder_left_is_swept_when_it_is_old(store: Store, key: CacheKey, hung: subprocess.Popen[str]):
    staging = store.root / "kernels-v1" / "staging"
    (left,) = staging.iterdir()
    os.utime(left, (time.time() - 7200,) * 2)
    days = itertools.count(1)

    def is_swept() -> bool:
        store.prune(now_s=time.time() + next(days) * 86_400)
        return not list(staging.iterdir())

    assert not is_swept(), "its process lives"
    _kill(hung)
    os.utime(left, (time.time() - 60,) * 2)
    assert not is_swept(), "a minute is no age"
    os.utime(left, (time.time() - 7200,) * 2)
    assert is_swept()


def test_a_wait_names_the_process_that_builds(store: Store, key: CacheKey, hung: subprocess.Popen[str]):
    waits: list[tuple[float, str]] = []
    with pytest.raises(Exception, match=f"process {hung.pid} "):
        store.get_or_build(key, _quick, lock_timeout_s=1.1, on_wait=lambda *wait: waits.append(wait))
    assert [builder for _, builder in waits] == [f"process {hung.pid}"]


def test_another_key_does_not_wait(store: Store, hung: subprocess.Popen[str]):
    assert hung.poll() is None
    other = CacheKey("module", (("name", b"sother"),))
    assert store.get_or_build(other, _quick, lock_timeout_s=0).built
