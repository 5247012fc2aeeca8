"""Many processes and threads that want the same thing at the same moment: it is compiled once, and all have it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.faults import Tallies, effort, first_of, seeds
from tests.support.runtime import environment, forwarding_compiler

pytestmark = pytest.mark.timeout(3600)
PROCESSES = effort(6, 64, 64)
ROUNDS = effort(1, 2, 10)
CROWD = """
import os, sys, threading, time
from tests.faults import answering
ready, start, threads, *names = sys.argv[1:]
found = []
def ask(name):
    found.append((name, *answering.load(f"crowd{name}", name)))
open(ready, "w").close()
while not os.path.exists(start):
    time.sleep(0.005)
every = [threading.Thread(target=ask, args=(name,)) for name in names for _ in range(int(threads))]
for thread in every:
    thread.start()
for thread in every:
    thread.join(120)
assert len(found) == len(every), f"{len(every) - len(found)} threads have nothing"
assert all(str(answer) == name for name, answer, _ in found), found
print("\\n".join(sorted({f"{name} {path}" for name, _, path in found})))
"""


def crowd(folder: Path, processes: int, threads: int, modules: int) -> tuple[list[str], dict[str, int]]:
    """Let many ask at once in a fresh cache; return what went wrong, and how often each module was compiled."""
    folder.mkdir()
    notes, start = folder / "notes", folder / "start"
    watch = f'case "$*" in *crowd*.cc*) echo "$*" >> \'{notes}\';; esac'
    compiler = forwarding_compiler(folder / "g++", watch)
    env = environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(folder / "cache"))
    names = [str(number) for number in range(1, modules + 1)]
    running = []
    for number in range(processes):
        argv = (sys.executable, "-c", CROWD, str(folder / f"ready{number}"), str(start), str(threads), *names)
        running.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    while any(each.poll() is None for each in running) and len(list(folder.glob("ready*"))) < processes:
        time.sleep(0.01)
    start.touch()
    ended = [each.communicate(timeout=300) for each in running]
    wrong = [err[-800:] for each, (_, err) in zip(running, ended, strict=True) if each.returncode]
    paths = {line for out, _ in ended for line in out.splitlines()}
    wrong += [f"one module has several libraries: {paths}"] if len(paths) != modules else []
    compiled = re.findall(r"crowd(\d+)\.cc", notes.read_text())
    return wrong, {name: compiled.count(name) for name in names}


@pytest.mark.parametrize("seed", seeds(ROUNDS))
@pytest.mark.parametrize("crowd_of", first_of([(PROCESSES, 1, 1), (2, max(3, PROCESSES // 4), 3)]), ids=str)
def test_many_processes_or_threads_compile_once(seed: int, crowd_of: Sequence[int], tally: Tallies, tmp_path: Path):
    processes, threads, modules = crowd_of
    loads = tally(f"loads by {threads} threads of {processes} processes at once, for each of {modules} modules", seed)
    loads.wrong, compiled = crowd(tmp_path / "crowd", processes, threads, modules)
    loads.tried = processes * threads * modules
    loads.notes["compiled"] = sum(compiled.values())
    loads.wrong += [] if set(compiled.values()) == {1} else [f"compiled {compiled} times"]
    loads.check()


FORKS = effort(8, 20, 200)


@pytest.mark.parametrize("way", first_of(["os.fork", "fork", "loader", "persistent loader", "forkserver", "spawn"]))
def test_forks_while_a_thread_builds(way: str, tally: Tallies):
    forks = tally("builds beside forks", 0)
    argv = (sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.support.forking", str(FORKS), way)
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=3500, check=False)
    forks.tried = FORKS
    forks.wrong += [] if f"{way}: {FORKS} rounds" in done.stdout else [done.stderr[-2000:]]
    forks.check()
