"""A cold `load_cuda_inline` against bare nvcc on the same kernel and launcher; needs no GPU."""

from __future__ import annotations

from pathlib import Path

from ..bench import Bench
from ..cold import ColdJob, Load, measure_cold
from ..figure import Figure, Row
from ..toolkit import archs_to_name, nvcc_command, nvcc_path

GOAL, FIRST_GOAL = 0.5, 0.75


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Load and command in turn."""
    nvcc_path(bench)

    def command(source: Path, library: Path) -> tuple[str, ...]:
        return nvcc_command(bench, source, library)

    job = ColdJob(
        load=Load(function="load_cuda_inline", file="vector_add.cu", archs=archs_to_name(bench)),
        bare="bare.cu",
        command=command,
        label="cold load_cuda_inline",
        baseline="bare nvcc -O3 -shared",
        goal=GOAL,
        first_goal=FIRST_GOAL,
    )
    return measure_cold(bench, job)


ROW = Row(measure=measure)
