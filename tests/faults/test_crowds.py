"""Many processes and threads that want the same thing at once, in a job and beside forks: it is compiled once."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tests.support import jobs
from tests.support.faults import Tallies, chance, effort, first_of, longer, seeds
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


MEMBER = "tests.compile.be_runtime.store.sharing.member"
SIZES = effort((5,), (8, 8, 8, 32), (8,) * 60 + (32,) * 10)
KERNELS = 3
SLACK_S = 30.0
"""More processes than processors take their time."""


@longer
@pytest.mark.parametrize(("seed", "count"), [*zip(seeds(len(SIZES)), SIZES, strict=True)])
def test_whoever_is_left_gets_the_kernels(tmp_path: Path, tally: Tallies, seed: int, count: int):
    counted, rng = tally("loads in jobs with faults", seed), chance(seed)
    plans = []
    for _ in range(count):
        loads = [[f"k{number}", "-O2", "sm_90"] for number in range(KERNELS)]
        rng.shuffle(loads)
        plans.append({"loads": loads, "damages": rng.random() < 0.1, "seconds": rng.uniform(0.1, 2.0)})
    events = [(rng.uniform(0.0, 2.0), rng.choice(("kill", "stop"))) for _ in range(count // 4)]
    victims: dict[int, str] = {}
    with jobs.running(MEMBER, [(str(tmp_path), json.dumps(plan)) for plan in plans]) as job:
        jobs.wait_for(tmp_path, "building-*")
        for pause_s, what in events:
            time.sleep(pause_s)
            victim = next_victim(tmp_path, rng, count, victims)
            victims[victim] = what
            job.processes[victim].send_signal(signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        time.sleep(rng.uniform(0.0, 6.0))
        for victim, what in victims.items():
            if what == "stop":
                job.processes[victim].send_signal(signal.SIGCONT)
        left = [number for number in range(count) if victims.get(number) != "kill"]
        answers = job.answers(*left, patience_s=80)
    counted.notes["processes killed"] = count - len(left)
    counted.notes["processes stopped"] = len(victims) - count + len(left)
    for answer in answers:
        counted.tried += KERNELS
        got = {name: how for name, how, *_ in answer["results"]}
        if set(got) != {f"k{number}" for number in range(KERNELS)} or not {*got.values()} <= {"built", "fetched"}:
            counted.wrong.append(str(got))
        counted.notes["builds"] += sum(how == "built" for how in got.values())
        slow = [row for row in answer["results"] if row[3] > SLACK_S]
        counted.wrong += [f"{row[0]} took {row[3]:.0f} s" for row in slow]
    counted.check()


def next_victim(folder: Path, rng: random.Random, count: int, victims: Collection[int]) -> int:
    """The last process that has begun a build, if it is none yet; never process 0, which has the store."""
    builds = sorted(folder.glob("building-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    builders = [int(path.name.rpartition("-")[2]) for path in builds]
    others = rng.sample(range(1, count), count - 1)
    return next(number for number in (*builders, *others) if number and number not in victims)
