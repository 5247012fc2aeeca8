"""What our imports cost: `be_runtime` on top of jax, `be_toolchain` alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..bench import Bench
from ..figure import Figure, Row
from ..stats import alternating

ROUNDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An import; `modules` is what is imported, then what is there before the clock starts."""

    label: str
    modules: tuple[str, ...]
    goal_s: float | None = None


CASES = (
    Case(label="import be_runtime, after import jax", modules=("be_runtime", "jax"), goal_s=15e-3),
    Case(label="import be_toolchain", modules=("be_toolchain",), goal_s=30e-3),
    # The package imports its parts on first use: this is what a program that resolves a toolchain pays.
    Case(label="import of the modules that search for a toolchain", modules=("be_toolchain.find.record",)),
    Case(
        label="imports of a cold load before the compiler starts",
        modules=("be_runtime.compile.make", "jax", "be_runtime.load.process"),
        goal_s=12e-3,
    ),
)


def measure(bench: Bench) -> tuple[Figure, ...]:
    """All in turn, each time in a process of its own; the first of each writes the bytecode and isn't counted."""
    samples: dict[Case, list[float]] = {case: [] for case in CASES}
    for case in CASES:
        _seconds(bench, case)
    for order in alternating(CASES, bench.rounds(ROUNDS)):
        for case in order:
            samples[case].append(_seconds(bench, case))
    return tuple(Figure(label=case.label, ours=tuple(taken), goal=case.goal_s) for case, taken in samples.items())


def _seconds(bench: Bench, case: Case) -> float:
    return float(bench.child("import_time.py", *case.modules, cache=bench.scratch))


ROW = Row(measure=measure)
