"""A load whose module is in a remote cache, a real nginx, or is not, against a build without one."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tests.support.nginx import nginx

from ..bench import Bench, interleave
from ..cold import Load, cold_load, copy_cache, known_cache, unique_source
from ..figure import Figure, Row, Unavailable
from ..toolkit import archs_to_name

ROUNDS = 7
HIT_GOAL, MISS_GOAL = {"cpp": 0.7, "cuda": 0.2}, {"cpp": 1.3, "cuda": 1.1}


def measure(bench: Bench) -> tuple[Figure, ...]:
    """C++, and CUDA where there is a toolkit."""
    if shutil.which("nginx") is None:
        raise Unavailable("no nginx")
    loads = [Load(function="load_cpp_inline", file="vector_add.cc")]
    if bench.cuda is not None:
        loads.append(Load(function="load_cuda_inline", file="vector_add.cu", archs=archs_to_name(bench)))
    with nginx(bench.folder("nginx")) as url:
        return tuple(figure for load in loads for figure in _measure(bench, load, url))


def _measure(bench: Bench, load: Load, url: str) -> tuple[Figure, ...]:
    known = known_cache(bench, partial(cold_load, bench, load))
    samples: dict[str, list[float]] = {"hit": [], "miss": [], "cold": []}
    for contestant in interleave(tuple(samples), bench.rounds(ROUNDS)):
        source, name = unique_source(bench, load.file), bench.unique("remote")
        if contestant == "hit":
            _load(bench, load, name, source, copy_cache(bench, known), BE_REMOTE_CACHE=url, BE_REMOTE_CACHE_WRITE="1")
        remote = None if contestant == "cold" else url
        samples[contestant].append(_load(bench, load, name, source, copy_cache(bench, known), BE_REMOTE_CACHE=remote))
    language = "cuda" if "cuda" in load.function else "cpp"
    cold = tuple(samples["cold"])
    return (
        Figure(
            label=f"{load.function} from a remote cache",
            ours=tuple(samples["hit"]),
            baseline="a cold load",
            theirs=cold,
            goal=HIT_GOAL[language],
        ),
        Figure(
            label=f"cold {load.function}, not in the remote cache",
            ours=tuple(samples["miss"]),
            baseline="without a remote cache",
            theirs=cold,
            goal=MISS_GOAL[language],
        ),
    )


def _load(bench: Bench, load: Load, name: str, source: Path, cache: Path, **variables: str | None) -> float:
    """Seconds of a load in a new process that has run a jitted function."""
    arguments = (load.function, name, str(source), load.archs, "backend")
    return float(bench.child("load.py", *arguments, cache=cache, JAX_PLATFORMS="cpu", **variables)["load"])


ROW = Row(measure=measure)
