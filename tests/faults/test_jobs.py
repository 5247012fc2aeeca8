"""Jobs whose processes are killed, stopped or send damaged bytes, at random moments: the others get their kernels."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.support import jobs
from tests.support.faults import Tallies, chance, effort, longer, seeds

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
