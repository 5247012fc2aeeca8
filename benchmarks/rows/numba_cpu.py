"""A Numba CPU kernel inside a jitted program against the same kernel in C++, and from two threads against one."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

from ..bench import KERNELS, Bench
from ..figure import Figure, Row, Unavailable
from .calls import CPU, FORMS

GOAL = 1.2
THREADS_GOAL = 1 / 1.8
THREAD_STEPS, THREAD_CALLS, THREAD_ROUNDS = 200_000, 200, 20


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Both figures, from the same processes."""
    if importlib.util.find_spec("numba") is None:
        raise Unavailable("numba is not installed")
    rounds, thread_rounds = bench.rounds(CPU.rounds, quick=5), bench.rounds(THREAD_ROUNDS)
    job = bench.folder("job") / "job.json"
    job.write_text(json.dumps(_job(bench, rounds, thread_rounds)), encoding="utf-8")
    cache = bench.folder("cache")
    processes = 2 if bench.quick else CPU.processes
    runs = [bench.child("numba_calls.py", str(job), cache=cache, **dict(CPU.variables)) for _ in range(processes)]
    return (*_calls(runs, rounds), _threads(runs, thread_rounds))


def _calls(runs: list[Any], rounds: int) -> Iterator[Figure]:
    for form, shown in FORMS.items():
        ours, theirs = (tuple(value for run in runs for value in run["calls"][form][name]) for name in ("numba", "cpp"))
        yield Figure(
            label=f"call of numba_kernel, CPU, {shown}",
            ours=ours,
            baseline="load_cpp_inline",
            theirs=theirs,
            goal=GOAL,
            block=rounds,
        )


def _threads(runs: list[Any], rounds: int) -> Figure:
    ours, theirs = (tuple(value for run in runs for value in run["threads"][name]) for name in ("two", "one"))
    return Figure(
        label="call of numba_kernel, CPU, from two threads",
        ours=ours,
        baseline="calls from one thread",
        theirs=theirs,
        goal=THREADS_GOAL,
        block=rounds,
    )


def _job(bench: Bench, rounds: int, thread_rounds: int) -> dict[str, object]:
    """What `children/numba_calls.py` is told."""
    return {
        "language": "cpp",
        "source": str(KERNELS / "vector_add.cc"),
        "elements": CPU.elements,
        "lengths": CPU.lengths,
        "rounds": rounds,
        "executions": CPU.executions,
        "thread_steps": THREAD_STEPS,
        "thread_calls": 20 if bench.quick else THREAD_CALLS,
        "thread_rounds": thread_rounds,
    }


ROW = Row(measure=measure)
