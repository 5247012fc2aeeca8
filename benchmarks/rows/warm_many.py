"""Warm loads at scale: many modules in one process, and a module among many entries of the cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.keys import make_key

from ..bench import KERNELS, Bench, interleave
from ..figure import Figure, Row
from ..generated import SUFFIXES, folder_file
from ..toolkit import archs_to_name

ROUNDS = 15
MODULES, QUICK_MODULES = 100, 2
ENTRIES = (10, 10_000)
QUICK_ENTRIES = (2, 20)
MODULES_GOAL, ENTRIES_GOAL = 1.0, 1.1


def measure(bench: Bench) -> tuple[Figure, ...]:
    """C++ everywhere; CUDA where there is a GPU, since 100 modules take minutes to build on few cores."""
    languages = ("cpp", "cuda") if bench.device is not None and bench.cuda is not None else ("cpp",)
    return (*(_many_modules(bench, language) for language in languages), _many_entries(bench))


def _many_modules(bench: Bench, language: str) -> Figure:
    """The mean of a process that loads all, and the one load of a process that loads one."""
    count = QUICK_MODULES if bench.quick else MODULES
    folder, cache = bench.folder("modules"), bench.folder("cache")
    paths = [folder / f"module_{index}{SUFFIXES[language]}" for index in range(count)]
    for index, path in enumerate(paths):
        path.write_text(folder_file(language, index % 4, edition=index), encoding="utf-8")
    archs = archs_to_name(bench) if language == "cuda" else "-"
    platforms = {"JAX_PLATFORMS": "cpu"} if language == "cpp" else {}

    def load(chosen: Sequence[Path]) -> float:
        arguments = (f"load_{language}_file", archs, *map(str, chosen))
        return float(mean(bench.child("load_many.py", *arguments, cache=cache, **platforms)))

    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(load, filter(None, (paths[start::cores] for start in range(cores)))))
    samples: dict[str, list[float]] = {"together": [], "alone": []}
    for turn, name in enumerate(interleave(tuple(samples), bench.rounds(ROUNDS))):
        samples[name].append(load(paths if name == "together" else [paths[turn * 7 % count]]))
    return Figure(
        label=f"warm load_{language}_file, mean of {count} modules in one process",
        ours=tuple(samples["together"]),
        baseline="one in a process of its own",
        theirs=tuple(samples["alone"]),
        goal=MODULES_GOAL,
    )


def _many_entries(bench: Bench) -> Figure:
    """The same module in a cache that holds few entries and in one that holds many."""
    few, many = QUICK_ENTRIES if bench.quick else ENTRIES
    caches = {"few": bench.folder("cache"), "many": bench.folder("cache")}
    for name, count in (("few", few), ("many", many)):
        fill(caches[name], count)
        _load(bench, caches[name])
    samples: dict[str, list[float]] = {name: [] for name in caches}
    for name in interleave(tuple(caches), bench.rounds(ROUNDS)):
        samples[name].append(_load(bench, caches[name]))
    return Figure(
        label=f"warm load_cpp_inline, {many} entries in the cache",
        ours=tuple(samples["many"]),
        baseline=f"{few} entries",
        theirs=tuple(samples["few"]),
        goal=ENTRIES_GOAL,
    )


def fill(cache: Path, count: int) -> None:
    """Put so many small entries into a cache folder."""

    def build(staging: Path) -> BuildOutput:
        (staging / "module.so").write_bytes(b"small")
        return BuildOutput(outputs=("module.so",), dependencies=())

    store = Cache(cache)
    for index in range(count):
        store.get_or_build(make_key("module", ("name", f"filler_{index}")), build)


def _load(bench: Bench, cache: Path) -> float:
    """Seconds of the load alone, in a new process."""
    arguments = ("load_cpp_inline", "warm", str(KERNELS / "vector_add.cc"), "-", "backend")
    return float(bench.child("load.py", *arguments, cache=cache, JAX_PLATFORMS="cpu")["load"])


ROW = Row(measure=measure)
