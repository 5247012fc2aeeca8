"""The load of a module that the cache has, in a new process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..bench import KERNELS, Bench
from ..figure import Figure, Row
from ..stats import alternating

GOAL_S = 6e-3
ROUNDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kind of warm load; `state` is what jax is before: ``imported``, or its ``backend`` up as well."""

    language: str
    state: str

    @property
    def label(self) -> str:
        """For the table."""
        state = "jax imported" if self.state == "imported" else "jax's backend up"
        return f"warm load_{self.language}_inline, {state}"


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Every variant in turn, each time in a process of its own."""
    languages = ("cpp", "cuda") if bench.cuda is not None else ("cpp",)
    variants = [Variant(language=language, state=state) for language in languages for state in ("imported", "backend")]
    cache = bench.folder("warm")
    sources = {language: _copy_source(bench, language) for language in languages}
    for variant in variants:
        _load(bench, variant, cache, sources)
    samples: dict[Variant, list[float]] = {variant: [] for variant in variants}
    for order in alternating(variants, bench.rounds(ROUNDS)):
        for variant in order:
            samples[variant].append(_load(bench, variant, cache, sources))
    return tuple(Figure(label=variant.label, ours=tuple(taken), goal=GOAL_S) for variant, taken in samples.items())


def _copy_source(bench: Bench, language: str) -> Path:
    name = {"cpp": "vector_add.cc", "cuda": "vector_add.cu"}[language]
    return Path(shutil.copy(KERNELS / name, bench.folder("source")))


def _load(bench: Bench, variant: Variant, cache: Path, sources: dict[str, Path]) -> float:
    """Seconds of the load alone, `import be_runtime` left out."""
    on_gpu = variant.language == "cuda" and bench.device is not None
    arch = "-" if variant.language == "cpp" or on_gpu else bench.arch
    platforms = {} if on_gpu else {"JAX_PLATFORMS": "cpu"}
    name = f"warm_{variant.language}"
    source = str(sources[variant.language])
    timing = bench.child("load.py", variant.language, name, source, arch, variant.state, cache=cache, **platforms)
    return float(timing["load"])


ROW = Row(measure=measure)
