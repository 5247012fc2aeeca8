"""What it costs a cold load to record every file that the compilers look at."""

from __future__ import annotations

from pathlib import Path

from ..bench import Bench, interleave
from ..cold import Load, cold_load, copy_cache, known_cache, unique_source
from ..figure import Figure, Row
from ..toolkit import archs_to_name

ROUNDS = 15
GOALS = {"cpp": 1.02, "cuda": 1.01}


def measure(bench: Bench) -> tuple[Figure, ...]:
    """C++, and CUDA where there is a toolkit."""
    return tuple(_figure(bench, language) for language in ("cpp", "cuda")[: 1 if bench.cuda is None else 2])


def _figure(bench: Bench, language: str) -> Figure:
    archs = archs_to_name(bench) if language == "cuda" else "-"
    load = Load(
        function=f"load_{language}_inline",
        file=f"vector_add{'.cu' if language == 'cuda' else '.cc'}",
        archs=archs,
    )

    def fill(cache: Path) -> float:
        return cold_load(bench, load, cache)

    known = known_cache(bench, fill)
    samples: dict[str, list[float]] = {"on": [], "off": []}
    for records in interleave(("on", "off"), bench.rounds(ROUNDS)):
        source = unique_source(bench, load.file)
        arguments = (load.function, bench.unique("recorded"), str(source), load.archs, records)
        cache = copy_cache(bench, known)
        samples[records].append(
            float(bench.child("recorded_load.py", *arguments, cache=cache, JAX_PLATFORMS="cpu")),
        )
    return Figure(
        label=f"cold load_{language}_inline, files recorded",
        ours=tuple(samples["on"]),
        baseline="load without recording",
        theirs=tuple(samples["off"]),
        goal=GOALS[language],
        within_noise=True,
    )


ROW = Row(measure=measure)
