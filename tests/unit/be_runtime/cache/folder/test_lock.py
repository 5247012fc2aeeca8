from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store
from be_runtime.cache.folder.lock import key_lock, remove_if_free
from be_runtime.errors import CacheError


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "ab" / "x.lock")


def _is_held(path: str) -> bool:
    try:
        with key_lock(path, timeout_s=0):
            return False
    except CacheError:
        return True


def test_the_lock_is_held_in_the_block_alone(lock: str):
    with key_lock(lock):
        assert _is_held(lock)
    assert not _is_held(lock)
    with pytest.raises(ZeroDivisionError), key_lock(lock):
        raise ZeroDivisionError
    assert not _is_held(lock)


def test_a_wait_that_is_too_long_names_the_holder(lock: str):
    with key_lock(lock), pytest.raises(CacheError, match="process 42") as caught:  # noqa: SIM117
        with key_lock(lock, timeout_s=0.05, holder=lambda: "process 42"):
            pass
    assert any(lock in hint for hint in caught.value.hints)
    assert any("BE_LOCK_TIMEOUT_S" in hint for hint in caught.value.hints)


def test_waiting_is_reported_after_a_second(lock: str):
    reports: list[tuple[float, str]] = []
    with key_lock(lock), pytest.raises(CacheError):  # noqa: SIM117
        with key_lock(lock, timeout_s=2.3, on_wait=lambda *wait: reports.append(wait), holder=lambda: "process 42"):
            pass
    [(waited, holder)] = reports
    assert waited >= 1.0
    assert holder == "process 42"


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
        assert _is_held(lock)


def test_only_a_free_lock_file_is_removed(lock: str):
    with key_lock(lock):
        remove_if_free(lock)
        assert Path(lock).exists()
    remove_if_free(lock)
    assert not Path(lock).exists()
    remove_if_free(lock)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EIO])
def test_without_locks_a_build_goes_on(tmp_path: Path, key: CacheKey, header: Path, code: int):
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(header.read_bytes())
        time.sleep(0.05)
        return BuildOutput(outputs=("m.so",), dependencies=(header,))

    store = Store(tmp_path / "cache", flock=flock)
    threads = [threading.Thread(target=store.get_or_build, args=(key, build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hit = store.get(key)
    assert hit is not None
    assert hit.output("m.so").read_bytes() == b"one"


def test_a_lock_that_fails_otherwise_is_an_error(lock: str):
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.raises(CacheError, match="Bad file descriptor"), key_lock(lock, flock=flock):
        pass


def test_the_lock_is_not_inherited_by_programs(lock: str):
    with key_lock(lock):
        held = [fd for fd in (int(path.name) for path in Path("/proc/self/fd").iterdir()) if _links_to(fd, lock)]
        assert held
        assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in held)


def _links_to(descriptor: int, path: str) -> bool:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()) == path
    except OSError:
        return False
