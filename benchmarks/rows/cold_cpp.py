"""A cold `load_cpp_inline` against the C++ compiler on the same function without any binding."""

from __future__ import annotations

from pathlib import Path

from ..bench import Bench
from ..cold import ColdJob, Load, measure_cold
from ..figure import Figure, Row

GOAL, FIRST_GOAL = 1.5, 2.0


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Load and command in turn."""

    def command(source: Path, library: Path) -> tuple[str, ...]:
        return (str(bench.cxx.path), "-O3", "-shared", "-fPIC", str(source), "-o", str(library))

    job = ColdJob(
        load=Load(function="load_cpp_inline", file="vector_add.cc"),
        bare="bare.cc",
        command=command,
        label="cold load_cpp_inline",
        baseline="bare g++ -O3 -shared" if bench.cxx.family == "gcc" else "bare clang++ -O3 -shared",
        goal=GOAL,
        first_goal=FIRST_GOAL,
    )
    return measure_cold(bench, job)


ROW = Row(measure=measure)
