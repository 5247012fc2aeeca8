"""An eager call of a module's function against a call of a jitted function with the same `ffi_call`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..bench import Bench
from ..figure import Figure, Row

SHOWN = {"plain": "without attributes", "attribute": "with an attribute", "attributes": "with three attributes"}
ROUNDS, CALLS, PROCESSES = 60, 500, 6
GOAL = 1.1


def measure(bench: Bench) -> Iterator[Figure]:
    """Calls outside of `jit`, without an attribute, with one and with three."""
    rounds = bench.rounds(ROUNDS, quick=15)
    job = bench.folder("job") / "job.json"
    job.write_text(json.dumps({"rounds": rounds, "calls": CALLS}), encoding="utf-8")
    cache = bench.folder("cache")
    processes = 2 if bench.quick else PROCESSES
    runs = [bench.child("eager_calls.py", str(job), cache=cache, JAX_PLATFORMS="cpu") for _ in range(processes)]
    for kind, shown in SHOWN.items():
        ours, theirs = (tuple(sample for run in runs for sample in run[kind][name]) for name in ("module", "jit"))
        yield Figure(
            label=f"eager call, CPU, {shown}",
            ours=ours,
            baseline="jitted function",
            theirs=theirs,
            goal=GOAL,
            block=rounds,
        )


ROW = Row(measure=measure)
