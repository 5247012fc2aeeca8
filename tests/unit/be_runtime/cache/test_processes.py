"""Real processes: many that ask at once, one that is killed while it builds, and what one does for a hit."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from be_runtime.cache import make_key
from be_toolchain.machine.sealed_json import seal, unseal
from tests.support.runtime import run_python
from tests.unit.be_runtime.cache.bench import Bench

_PRELUDE = """
import errno, json, os, sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.cache import BuildOutput, CacheKey, Store
store, key, log = Store(Path(sys.argv[2])), CacheKey.from_json(sys.argv[3]), sys.argv[4]
"""
# One interpreter imports, then forks: twenty starts of Python would measure Python.
_FLEET = """
def no_flock(descriptor, operation):
    raise OSError(errno.ENOLCK, "no locks")
if sys.argv[5] == "no locks": store = store._replace(flock=no_flock)
def build(staging):
    with open(log, "a") as file: file.write("build\\n")
    (staging / "m.so").write_bytes(b"content" * 1000)
    return BuildOutput(outputs=("m.so",))
start, started = os.pipe()
children = []
for _ in range(20):
    children.append(os.fork())
    if children[-1] == 0:
        status = 1
        try:
            os.close(started)
            os.read(start, 1)
            entry = store.get_or_build(key, build, lock_timeout_s=30)
            status = 0 if entry.output("m.so").read_bytes() == b"content" * 1000 else 2
        finally:
            os._exit(status)
os.close(started)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
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


def arguments(bench: Bench, *more: str) -> tuple[str, ...]:
    return (repr(sys.path), str(bench.store.root), bench.key.to_json(), str(bench.folder / "log"), *more)


@pytest.mark.parametrize("mode", ["locks", "no locks"])
def test_twenty_processes_all_get_a_whole_entry_and_with_locks_make_one_build(bench: Bench, mode: str):
    assert run_python(_PRELUDE + _FLEET, *arguments(bench, mode)).stdout == f"{[0] * 20}\n"
    builds = (bench.folder / "log").read_text().count("build")
    assert builds == len(list(bench.store.entries()))
    assert builds == 1 or mode == "no locks"
    assert bench.hit()


@pytest.fixture
def hung(bench: Bench) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the middle of a build."""
    argv = (sys.executable, "-c", _PRELUDE + _HANG, *arguments(bench))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"building\n"
        yield process
        process.kill()


def test_a_wait_names_the_process_that_builds_and_another_key_does_not_wait(
    bench: Bench, hung: subprocess.Popen[bytes]
):
    waits: list[str] = []
    with pytest.raises(Exception, match=f"process {hung.pid} "):
        bench.make(lock_timeout_s=1.1, on_wait=lambda _, builder: waits.append(builder))
    assert waits == [f"process {hung.pid}"]
    assert bench.store.get_or_build(make_key("module", ("name", "other")), bench.build, lock_timeout_s=0).built


def test_a_builder_that_is_killed_blocks_nobody_and_what_it_left_is_swept_when_it_is_old(
    bench: Bench, hung: subprocess.Popen[bytes]
):
    days = itertools.count(1)
    (left,) = bench.staged()

    def is_swept(age_s: float) -> bool:
        with contextlib.suppress(FileNotFoundError):
            os.utime(bench.base / "staging" / left, (time.time() - age_s,) * 2)
        bench.store.prune(now_s=time.time() + next(days) * 86_400)
        return not bench.staged()

    assert not is_swept(7200), "its process lives"
    hung.kill()
    hung.wait(10)
    assert bench.make(lock_timeout_s=5).built
    assert not is_swept(60), "a minute is no age"
    assert is_swept(7200)


def test_a_hit_lists_one_folder_opens_one_file_and_starts_nothing(bench: Bench):
    """Among any number of entries; the benchmark `warm_many` says how long it takes. Stat proves an old file."""
    entry = bench.make(lambda staging: bench.build(staging, dependencies=(json.__file__,)))
    manifest = unseal((entry.path / "manifest.json").read_text())
    for number in range(100):
        digest = make_key("filler", ("number", str(number))).digest
        folder = bench.base / digest[:2] / digest / entry.path.name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(seal({**manifest, "digest": digest}))
        os.link(entry.output("m.so"), folder / "m.so")
    assert sum(1 for _ in bench.store.entries()) == 101
    done = run_python(_PRELUDE + _TRACE, *arguments(bench))
    listed, opened = str(entry.path.parent), str(entry.path / "manifest.json")
    assert json.loads(done.stdout) == [["os.listdir", listed], ["open", opened]]
