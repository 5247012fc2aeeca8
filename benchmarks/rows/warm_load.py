"""The load of a module that the cache has, in a new process."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..bench import KERNELS, Bench
from ..figure import Figure, Row
from ..generated import SUFFIXES, many_entries
from ..stats import alternating
from ..toolkit import archs_to_name

ROUNDS = 15
ENTRIES = 200
IMPORTED_GOAL_S, ENTRIES_GOAL_S = 6e-3, 12e-3
BACKEND_GOAL_S = 2e-3 if len(os.sched_getaffinity(0)) >= 16 else 3.5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kind of warm load; `state` is what jax is before: ``imported``, or its ``backend`` up as well."""

    label: str
    language: str
    source: Path
    state: str
    goal_s: float


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Every variant in turn, each time in a process of its own."""
    languages = ("cpp", "cuda") if bench.cuda is not None else ("cpp",)
    variants = [variant for language in languages for variant in _variants(bench, language)]
    cache = bench.folder("warm")
    for variant in variants:
        _load(bench, variant, cache)
    samples: dict[Variant, list[float]] = {variant: [] for variant in variants}
    for order in alternating(variants, bench.rounds(ROUNDS)):
        for variant in order:
            samples[variant].append(_load(bench, variant, cache))
    return tuple(Figure(label=each.label, ours=tuple(taken), goal=each.goal_s) for each, taken in samples.items())


def _variants(bench: Bench, language: str) -> tuple[Variant, ...]:
    folder, suffix = bench.folder("source"), SUFFIXES[language]
    small = Path(shutil.copy(KERNELS / f"vector_add{suffix}", folder))
    large = folder / f"entries{suffix}"
    large.write_text(many_entries(language, ENTRIES), encoding="utf-8")
    label = f"warm load_{language}_inline"
    return (
        Variant(
            label=f"{label}, after import jax",
            language=language,
            source=small,
            state="imported",
            goal_s=IMPORTED_GOAL_S,
        ),
        Variant(
            label=f"{label}, after a first JAX computation",
            language=language,
            source=small,
            state="backend",
            goal_s=BACKEND_GOAL_S,
        ),
        Variant(
            label=f"{label}, {ENTRIES} entry points, after a first JAX computation",
            language=language,
            source=large,
            state="backend",
            goal_s=ENTRIES_GOAL_S,
        ),
    )


def _load(bench: Bench, variant: Variant, cache: Path) -> float:
    """Seconds of the load alone, `import be_runtime` left out."""
    is_cuda = variant.language == "cuda"
    archs = archs_to_name(bench) if is_cuda else "-"
    platforms = {} if is_cuda and bench.device is not None else {"JAX_PLATFORMS": "cpu"}
    arguments = (f"load_{variant.language}_inline", f"warm_{variant.source.stem}", str(variant.source), archs)
    timing = bench.child("load.py", *arguments, variant.state, cache=cache, **platforms)
    return float(timing["load"])


ROW = Row(measure=measure)
