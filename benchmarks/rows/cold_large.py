"""A cold `load_cuda_file` of 500 lines with templates and 12 entry points against bare nvcc on the same file."""

from __future__ import annotations

from pathlib import Path

from be_runtime.own_files import INCLUDE_DIR

from ..bench import KERNELS, Bench
from ..cold import ColdJob, Load, measure_cold
from ..figure import Figure, Row
from ..toolkit import archs_to_name, nvcc_command, nvcc_path

GOAL = 0.8


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Load and command in turn; the command binds nothing."""
    nvcc_path(bench)

    def command(source: Path, library: Path) -> tuple[str, ...]:
        return nvcc_command(bench, source, library, f"-I{INCLUDE_DIR}", f"-I{KERNELS}")

    job = ColdJob(
        load=Load(function="load_cuda_file", file="large.cu", archs=archs_to_name(bench)),
        bare="large_bare.cu",
        command=command,
        label="cold load_cuda_file, 500 lines",
        baseline="bare nvcc -O3 -shared",
        goal=GOAL,
    )
    return measure_cold(bench, job, with_first=False)


ROW = Row(measure=measure)
