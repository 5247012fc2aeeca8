"""All CUDA files of brainevent's package, loaded by as many processes as there are cores, up to 16."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from be_runtime.jax import port
from be_runtime.own_files import INCLUDE_DIR

from ..bench import Bench, interleave
from ..figure import Figure, Row, Unavailable
from ..toolkit import nvcc_command

ROUNDS = 7
VARIABLE = "BE_BRAINEVENT"
MOST_JOBS = 16
GOAL = 1.0


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Our loads from an empty cache, and nvcc on the same files without any binding, in turn."""
    folder = os.environ.get(VARIABLE)
    if not folder or bench.cuda is None or bench.cuda.nvcc is None:
        raise Unavailable(f"{VARIABLE} names no folder of brainevent's package, or there is no nvcc")
    files = sorted(
        (path for path in Path(folder).resolve().rglob("*.cu") if _is_complete(path)),
        key=lambda path: path.stat().st_size,
        reverse=True,
    )
    jobs = min(MOST_JOBS, len(os.sched_getaffinity(0)))
    samples: dict[str, list[float]] = {"ours": [], "bare": []}
    for name in interleave(tuple(samples), bench.rounds(ROUNDS)):
        start = time.perf_counter()
        if name == "ours":
            arguments = (str(jobs), bench.arch, *map(str, files))
            bench.child("corpus.py", *arguments, cache=bench.folder("cache"), JAX_PLATFORMS="cpu")
        else:
            _compile(bench, files, jobs)
        samples[name].append(time.perf_counter() - start)
    return (
        Figure(
            label=f"load_cuda_file of {len(files)} files, {jobs} at once",
            ours=tuple(samples["ours"]),
            baseline="bare nvcc -shared of each",
            theirs=tuple(samples["bare"]),
            goal=GOAL,
        ),
    )


def _is_complete(path: Path) -> bool:
    """Return whether a file needs no library, and no header that brainevent's wheel lacks."""
    text = path.read_text(encoding="utf-8")
    return "cublas_v2.h" not in text and "bn_tile.cuh" not in text


def _compile(bench: Bench, files: Sequence[Path], jobs: int) -> None:
    folder = bench.folder("bare")
    includes = (f"-I{INCLUDE_DIR}", f"-I{port.ffi_include_dir()}")
    commands = [nvcc_command(bench, path, folder / f"{number}.so", *includes) for number, path in enumerate(files)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(bench.timed, commands))


ROW = Row(measure=measure)
