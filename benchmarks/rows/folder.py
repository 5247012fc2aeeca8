"""A folder of 16 files: all against one and against perfect scheduling; one edited, against its compile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench import Bench, interleave
from ..build_log import perfect_seconds
from ..cold import copy_cache, known_cache
from ..figure import Figure, Row
from ..generated import SUFFIXES, folder_file
from ..toolkit import archs_to_name

ROUNDS = 7
FILES = 16
CHOSEN = FILES // 2
"""The file that stands for one: of middle size."""
ALL_GOAL, SCHEDULING_GOAL, EDIT_GOAL = 2.0, 1.10, 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The generated files of one language, on disk."""

    bench: Bench
    language: str
    path: Path
    archs: str

    def file(self, index: int) -> Path:
        """One of them."""
        return self.path / f"stage_{index}{SUFFIXES[self.language]}"

    def write(self, index: int, edition: int = 0) -> None:
        """Write one of them, or write it again with a change."""
        self.file(index).write_text(folder_file(self.language, index, edition), encoding="utf-8")

    def load_all(self, cache: Path) -> Any:
        """Load the folder in a new process that has run a jitted function; what it printed."""
        return self._load(f"load_{self.language}_dir", self.path, cache)

    def load_one(self, cache: Path) -> Any:
        """The same with one file."""
        return self._load(f"load_{self.language}_file", self.file(CHOSEN), cache)

    def _load(self, function: str, path: Path, cache: Path) -> Any:
        arguments = (function, "stages", str(path), self.archs, "backend")
        return self.bench.child("load.py", *arguments, cache=cache, JAX_PLATFORMS="cpu")


def measure(bench: Bench) -> tuple[Figure, ...]:
    """CUDA where there is a toolkit, and C++."""
    languages = ("cuda", "cpp") if bench.cuda is not None else ("cpp",)
    return tuple(figure for language in languages for figure in _measure_language(bench, language))


def _measure_language(bench: Bench, language: str) -> tuple[Figure, ...]:
    archs = archs_to_name(bench) if language == "cuda" else "-"
    folder = Folder(bench=bench, language=language, path=bench.folder("stages"), archs=archs)
    for index in range(FILES):
        folder.write(index)
    return (*_cold(folder, len(os.sched_getaffinity(0))), _edited(folder))


def _cold(folder: Folder, cores: int) -> tuple[Figure, ...]:
    """All files and one of them in turn, nothing in the cache; on fewer cores than files, the scheduling too."""
    bench, known = folder.bench, known_cache(folder.bench, folder.load_one)
    loads: dict[str, Callable[[Path], Any]] = {"all": folder.load_all, "one": folder.load_one}
    samples: dict[str, list[float]] = {"all": [], "one": [], "perfect": []}
    for name in interleave(tuple(loads), bench.rounds(ROUNDS)):
        timing = loads[name](copy_cache(bench, known))
        samples[name].append(float(timing["load"]))
        if name == "all":
            log = Path(timing["library"]).with_name("build.log").read_text(encoding="utf-8")
            samples["perfect"].append(perfect_seconds(log, cores))
    everything, one, perfect = (tuple(values) for values in samples.values())
    label, with_goal = f"cold load_{folder.language}_dir, {FILES} files", folder.language == "cuda"
    goal = ALL_GOAL if with_goal and cores >= FILES else None
    against_one = Figure(
        label=label, ours=everything, baseline=f"load_{folder.language}_file of 1 file", theirs=one, goal=goal
    )
    if cores >= FILES:
        return (against_one,)
    scheduling = Figure(
        label=label,
        ours=everything,
        baseline=f"its commands scheduled perfectly on {cores} cores",
        theirs=perfect,
        goal=SCHEDULING_GOAL if with_goal else None,
    )
    return (against_one, scheduling)


def _edited(folder: Folder) -> Figure:
    """The load after a change of one file, and the compiler's own command for that file."""
    bench, cache = folder.bench, folder.bench.folder("cache")
    library = Path(folder.load_all(cache)["library"])
    command = _compile_command(library.with_name("compile_commands.json"), folder.file(CHOSEN))
    bench.timed(command)
    samples: dict[str, list[float]] = {"load": [], "compile": []}
    for edition, name in enumerate(interleave(tuple(samples), bench.rounds(ROUNDS)), start=1):
        folder.write(CHOSEN, edition)
        seconds = float(folder.load_all(cache)["load"]) if name == "load" else bench.timed(command)
        samples[name].append(seconds)
    return Figure(
        label=f"load_{folder.language}_dir, 1 of {FILES} files edited",
        ours=tuple(samples["load"]),
        baseline="nvcc -c of the edited file" if folder.language == "cuda" else "c++ -c of the edited file",
        theirs=tuple(samples["compile"]),
        goal=EDIT_GOAL if folder.language == "cuda" else None,
    )


def _compile_command(database: Path, source: Path) -> tuple[str, ...]:
    """How a file is compiled by itself, with the flags that the load passes."""
    entries = json.loads(database.read_text(encoding="utf-8"))
    (arguments,) = (entry["arguments"] for entry in entries if entry["file"] == str(source))
    return (*arguments, "-o", str(source.with_suffix(".bare.o")))


ROW = Row(measure=measure)
