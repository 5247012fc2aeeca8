"""A CPU kernel on XLA's threads against the same kernel on one thread."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from ..bench import KERNELS, Bench
from ..figure import Figure, Row

SIZES = {400_000: 4, 1600: 200}
"""Elements of a call, and how many calls a program has."""
GRAIN = 2000
ROUNDS, EXECUTIONS, PROCESSES = 20, 10, 5
SPEEDUPS = {2: 1.8, 16: 12.0}


def measure(bench: Bench) -> Iterator[Figure]:
    """A long kernel, and one that is too short to share."""
    rounds = bench.rounds(ROUNDS, quick=3)
    job = bench.folder("job") / "job.json"
    described = {
        "source": str(KERNELS / "waves.cc"),
        "sizes": list(SIZES.items()),
        "grain": GRAIN,
        "rounds": rounds,
        "executions": EXECUTIONS,
    }
    job.write_text(json.dumps(described), encoding="utf-8")
    cache = bench.folder("cache")
    processes = 2 if bench.quick else PROCESSES
    runs = [bench.child("parallel_calls.py", str(job), cache=cache, JAX_PLATFORMS="cpu") for _ in range(processes)]
    cores = len(os.sched_getaffinity(0))
    speedup = max((gain for least, gain in SPEEDUPS.items() if cores >= least), default=None)
    for size in SIZES:
        ours, theirs = (tuple(s for run in runs for s in run[str(size)][name]) for name in ("together", "alone"))
        is_long = size > GRAIN
        yield Figure(
            label=f"parallel_for over {size:,} elements, {cores} cores",
            ours=ours,
            baseline="one thread",
            theirs=theirs,
            goal=(1 / speedup if speedup else None) if is_long else 1.0,
            within_noise=not is_long,
            block=rounds,
        )


ROW = Row(measure=measure)
