"""Cold loads: what the rows that measure them share, and their comparison with a bare compiler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from be_runtime.store.cache import Cache, look_up

from .bench import KERNELS, Bench, interleave
from .figure import Figure

ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load that is measured.

    Parameters
    ----------
    function : str
        Of `be_runtime`, such as ``"load_cuda_inline"``.
    file : str
        Of `benchmarks/kernels`.
    archs : str
        As ``compute_capability``; ``-`` for those of the devices.
    """

    function: str
    file: str
    archs: str = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdJob:
    """A load and the command that it is compared with.

    Parameters
    ----------
    load : Load
    bare : str
        A file of `benchmarks/kernels`.
    command : callable
        From a source and the library to make to the bare compiler's command.
    label : str
        For the table.
    baseline : str
        The command in short.
    goal, first_goal : float or None
        The largest ratios that are good enough: with the toolchain known, and first on the machine.
    """

    load: Load
    bare: str
    command: Callable[[Path, Path], tuple[str, ...]]
    label: str
    baseline: str
    goal: float
    first_goal: float | None = None


def measure_cold(bench: Bench, job: ColdJob, *, with_first: bool = True) -> tuple[Figure, ...]:
    """The load with the toolchain known, the bare compiler, and the load on a bare machine if wanted, in turn."""
    known = known_cache(bench, partial(cold_load, bench, job.load))
    bench.timed(_bare_command(bench, job))
    samples: dict[str, list[float]] = {name: [] for name in ("ours", "bare", "first")[: 3 if with_first else 2]}
    for contestant in interleave(tuple(samples), bench.rounds(ROUNDS)):
        if contestant == "bare":
            seconds = bench.timed(_bare_command(bench, job))
        else:
            cache = copy_cache(bench, known) if contestant == "ours" else bench.folder("cache")
            seconds = cold_load(bench, job.load, cache)
        samples[contestant].append(seconds)
    labels = {"ours": job.label, "first": f"{job.label}, first on the machine"}
    goals = {"ours": job.goal, "first": job.first_goal}
    return tuple(
        Figure(
            label=label,
            ours=tuple(samples[name]),
            baseline=job.baseline,
            theirs=tuple(samples["bare"]),
            goal=goals[name],
        )
        for name, label in labels.items()
        if name in samples
    )


def known_cache(bench: Bench, load: Callable[[Path], object]) -> Path:
    """A cache folder in which a module was built and removed twice: no module, but what is kept for the next build.

    That is what the machine was asked, the compiled handler, and the preamble, which a second build makes.

    Parameters
    ----------
    load : callable
        Builds a module, given the cache folder.
    """
    cache = bench.folder("known")
    for _ in range(2):
        load(cache)
        Cache(cache).clear()
    return cache


def copy_cache(bench: Bench, known: Path) -> Path:
    """A cache folder of its own with the same content, which the next load need not compare byte by byte."""
    cache = Path(shutil.copytree(known, bench.folder("cache"), dirs_exist_ok=True))
    toolchain = Cache(cache / "toolchain")
    for info in toolchain.entries():
        look_up(str(Path(info.path).parents[2]), info.digest)
    return cache


def cold_load(bench: Bench, load: Load, cache: Path) -> float:
    """Seconds of a load that no cache can answer, in a new process that has run a jitted function."""
    source = unique_source(bench, load.file)
    timing = bench.child(
        "load.py",
        load.function,
        bench.unique("cold"),
        str(source),
        load.archs,
        "backend",
        cache=cache,
        JAX_PLATFORMS="cpu",
    )
    return float(timing["load"])


def unique_source(bench: Bench, file: str) -> Path:
    """A copy that no cache anywhere has seen."""
    kernel = KERNELS / file
    folder = bench.folder("source")
    source = folder / kernel.name
    source.write_text(f"// {folder.parent.name} {folder.name}\n{kernel.read_text(encoding='utf-8')}", encoding="utf-8")
    return source


def _bare_command(bench: Bench, job: ColdJob) -> tuple[str, ...]:
    source = unique_source(bench, job.bare)
    return job.command(source, source.with_suffix(".so"))
