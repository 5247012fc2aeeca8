"""A cold load that ccache answers against the same load without a compiler cache."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from ..bench import KERNELS, Bench, interleave
from ..cold import ROUNDS, copy_cache, known_cache
from ..figure import Figure, Row, Unavailable
from ..generated import SUFFIXES
from ..toolkit import archs_to_name


def measure(bench: Bench) -> tuple[Figure, ...]:
    """C++, and CUDA where there is a toolkit."""
    if shutil.which("ccache") is None:
        raise Unavailable("ccache is not on PATH")
    languages = ("cpp", "cuda") if bench.cuda is not None else ("cpp",)
    return tuple(_measure_language(bench, language) for language in languages)


def _measure_language(bench: Bench, language: str) -> Figure:
    kept = {"BE_COMPILER_LAUNCHER": "ccache", "CCACHE_DISABLE": None, "CCACHE_DIR": str(bench.folder("ccache"))}
    variables: dict[str, dict[str, str | None]] = {"hit": kept, "compiled": {}}
    known = {name: known_cache(bench, partial(_load, bench, language, chosen)) for name, chosen in variables.items()}
    samples: dict[str, list[float]] = {name: [] for name in variables}
    for name in interleave(tuple(variables), bench.rounds(ROUNDS)):
        samples[name].append(_load(bench, language, variables[name], copy_cache(bench, known[name])))
    return Figure(
        label=f"cold load_{language}_inline, ccache has it",
        ours=tuple(samples["hit"]),
        baseline="the same compiled",
        theirs=tuple(samples["compiled"]),
    )


def _load(bench: Bench, language: str, variables: dict[str, str | None], cache: Path) -> float:
    """Seconds of the same load each time: only a cache of ours, which is empty, would know it."""
    archs = archs_to_name(bench) if language == "cuda" else "-"
    source = KERNELS / f"vector_add{SUFFIXES[language]}"
    arguments = (f"load_{language}_inline", "launched", str(source), archs, "backend")
    return float(bench.child("load.py", *arguments, cache=cache, **{"JAX_PLATFORMS": "cpu", **variables})["load"])


ROW = Row(measure=measure)
