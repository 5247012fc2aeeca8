"""A cold `load_cuda_inline` against bare nvcc on the same kernel and launcher; needs no GPU."""

from __future__ import annotations

from pathlib import Path

from ..bench import Bench
from ..cold import ColdJob, measure_cold
from ..figure import Figure, Row
from ..toolkit import nvcc_command

GOAL = 1.15


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Load and command in turn."""

    def command(source: Path, library: Path) -> tuple[str, ...]:
        return nvcc_command(bench, source, library)

    job = ColdJob(
        language="cuda",
        ours="vector_add.cu",
        bare="bare.cu",
        command=command,
        baseline="bare nvcc -O3 -shared",
        goal=GOAL,
        arch="-" if bench.device is not None else bench.arch,
    )
    return measure_cold(bench, job)


ROW = Row(measure=measure)
