"""Programs that carry their kernels: their load and their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..bench import KERNELS, Bench
from ..figure import Figure, Row
from .calls import CPU, FORMS

ROUNDS = 15
SITES = 100
LOAD_GOAL_S, LOAD_GOAL_S_PER_MIB = 3e-3, 3e-3
CALL_GOAL = 1.02


def measure(bench: Bench) -> Iterator[Figure]:
    """Everything from one folder of programs, in processes without a compiler."""
    folder, cache = bench.folder("programs"), bench.folder("cache")
    rounds, processes = bench.rounds(CPU.rounds, quick=5), 2 if bench.quick else CPU.processes
    job = folder / "job.json"

    def child(mode: str, first: int = 0, **variables: str) -> dict[str, dict[str, list[float]]]:
        job.write_text(json.dumps({**_job(rounds), "first": first}), encoding="utf-8")
        found: dict[str, dict[str, list[float]]] = bench.child(
            "exported.py", mode, str(job), cache=cache, **dict(CPU.variables), **variables
        )
        return found

    child("save")
    loads = [child("load", BE_JIT="never", PATH="/nowhere") for _ in range(bench.rounds(ROUNDS))]
    for name, goal in {"sites": LOAD_GOAL_S, "padded": LOAD_GOAL_S + LOAD_GOAL_S_PER_MIB * 16}.items():
        more = tuple(each[name]["load"] - each[name]["jax"] for each in loads)  # type: ignore[operator]
        label = f"{SITES} calls" if name == "sites" else "16 MiB of machine code"
        yield Figure(label=f"load_exported, {label}, beyond jax.export.deserialize", ours=more, goal=goal)
    runs = [child("call", first=index % 2) for index in range(processes)]
    for form, shown in FORMS.items():
        ours, theirs = (tuple(x for run in runs for x in run[form][name]) for name in ("exported", "registered"))
        yield Figure(
            label=f"call in an exported program, CPU, {shown}",
            ours=ours,
            baseline="registered target",
            theirs=theirs,
            goal=CALL_GOAL,
            within_noise=True,
            block=rounds,
        )


def _job(rounds: int) -> dict[str, object]:
    return {
        "source": str(KERNELS / "vector_add.cc"),
        "elements": CPU.elements,
        "lengths": CPU.lengths,
        "rounds": rounds,
        "executions": CPU.executions,
    }


ROW = Row(measure=measure)
