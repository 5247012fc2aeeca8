"""A cold load for four architectures against the same load for one; needs no GPU."""

from __future__ import annotations

import os
from functools import partial

from ..bench import Bench, interleave
from ..cold import ROUNDS, Load, cold_load, copy_cache, known_cache
from ..figure import Figure, Row
from ..toolkit import nvcc_path

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90")
GOAL = 1.4
CORES_FOR_GOAL = 4
CASES = {"a vector-add": ("load_cuda_inline", "vector_add.cu"), "500 lines": ("load_cuda_file", "large.cu")}


def measure(bench: Bench) -> tuple[Figure, ...]:
    """A small and a large source, for four architectures and for the last of them."""
    nvcc_path(bench)
    cores = len(os.sched_getaffinity(0))
    return tuple(_measure_case(bench, case, GOAL if cores >= CORES_FOR_GOAL else None) for case in CASES)


def _measure_case(bench: Bench, case: str, goal: float | None) -> Figure:
    function, file = CASES[case]
    loads = {
        "four": Load(function=function, file=file, archs=",".join(ARCHS)),
        "one": Load(function=function, file=file, archs=ARCHS[-1]),
    }
    known = {name: known_cache(bench, partial(cold_load, bench, load)) for name, load in loads.items()}
    samples: dict[str, list[float]] = {name: [] for name in loads}
    for name in interleave(tuple(loads), bench.rounds(ROUNDS)):
        samples[name].append(cold_load(bench, loads[name], copy_cache(bench, known[name])))
    return Figure(
        label=f"cold load for 4 architectures, {case}",
        ours=tuple(samples["four"]),
        baseline="load for one architecture",
        theirs=tuple(samples["one"]),
        goal=goal,
    )


ROW = Row(measure=measure)
