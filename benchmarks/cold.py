"""Cold loads against a bare compiler: what the rows of both languages share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import be_runtime

from .bench import KERNELS, Bench, interleave
from .figure import Figure

ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdJob:
    """A load and the command that it is compared with.

    Parameters
    ----------
    language : {"cpp", "cuda"}
    ours, bare : str
        Files of `benchmarks/kernels`.
    command : callable
        From a source and the library to make to the bare compiler's command.
    baseline : str
        The command in short.
    goal : float
        The largest ratio that is good enough.
    arch : str
        For the load; ``-`` for that of the devices.
    """

    language: str
    ours: str
    bare: str
    command: Callable[[Path, Path], tuple[str, ...]]
    baseline: str
    goal: float
    arch: str = "-"


def measure_cold(bench: Bench, job: ColdJob) -> tuple[Figure, ...]:
    """The load with the toolchain known, the load on a bare machine, and the bare compiler, in turn."""
    known = _cache_that_knows_the_toolchain(bench, job)
    bench.timed(_bare_command(bench, job))
    samples: dict[str, list[float]] = {"ours": [], "bare": [], "first": []}
    for contestant in interleave(tuple(samples), bench.rounds(ROUNDS)):
        if contestant == "bare":
            samples["bare"].append(bench.timed(_bare_command(bench, job)))
            continue
        cache = bench.folder("cache")
        if contestant == "ours":
            shutil.copytree(known, cache, dirs_exist_ok=True)
        samples[contestant].append(_load(bench, job, cache))
    ours, bare, first = (tuple(values) for values in samples.values())
    label = f"cold load_{job.language}_inline"
    return (
        Figure(label=label, ours=ours, baseline=job.baseline, theirs=bare, goal=job.goal),
        Figure(label=f"{label}, first on the machine", ours=first, baseline=job.baseline, theirs=bare),
    )


def _cache_that_knows_the_toolchain(bench: Bench, job: ColdJob) -> Path:
    """A cache folder in which a module was built and removed again: no module, but whatever the machine was asked."""
    cache = bench.folder("known")
    _load(bench, job, cache)
    be_runtime.set_cache_dir(cache)
    be_runtime.clear_cache()
    return cache


def _load(bench: Bench, job: ColdJob, cache: Path) -> float:
    """Seconds of the load in a new process that has run a jitted function."""
    name = bench.unique("cold")
    source = _unique_source(bench, job.ours)
    timing = bench.child(
        "load.py", job.language, name, str(source), job.arch, "backend", cache=cache, JAX_PLATFORMS="cpu"
    )
    return float(timing["load"])


def _bare_command(bench: Bench, job: ColdJob) -> tuple[str, ...]:
    source = _unique_source(bench, job.bare)
    return job.command(source, source.with_suffix(".so"))


def _unique_source(bench: Bench, file: str) -> Path:
    """A copy that no cache anywhere has seen."""
    kernel = KERNELS / file
    folder = bench.folder("source")
    source = folder / kernel.name
    source.write_text(f"// {folder.parent.name} {folder.name}\n{kernel.read_text(encoding='utf-8')}", encoding="utf-8")
    return source
