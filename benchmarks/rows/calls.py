"""A call inside a jitted program against hand-written handlers of the same function."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from be_runtime.jax.port import ffi_include_dir

from ..bench import KERNELS, Bench
from ..figure import Figure, Row
from ..toolkit import nvcc_command

OURS, REDIRECTED = "ours.vector_add", "redirected.vector_add"
GOALS = {"ffi.h": 1.02, "c_api.h": 1.0}
FILES = {"ffi.h": "handler_ffi_h", "c_api.h": "handler_c_api"}
FORMS = {"chain": "unrolled", "loop": "in fori_loop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how calls are made.

    Parameters
    ----------
    language : {"cpp", "cuda"}
    label : str
        For the table.
    elements : int
        Of the arrays.
    lengths : tuple of int
        Calls in the short and in the long program.
    rounds, executions, processes : int
        How often to measure, and how many executions of a program a sample is the fastest of.
    variables : tuple of (name, value)
        Environment variables.
    """

    language: str
    label: str
    elements: int
    lengths: tuple[int, int]
    rounds: int
    executions: int
    processes: int
    variables: tuple[tuple[str, str], ...]


CPU = Setting(
    language="cpp",
    label="CPU",
    elements=16,
    lengths=(200, 1000),
    rounds=60,
    executions=20,
    processes=6,
    variables=(("JAX_PLATFORMS", "cpu"),),
)
GPU = tuple(
    Setting(
        language="cuda",
        label=f"GPU, graphs {state}",
        elements=1024,
        lengths=(200, 600),
        rounds=30,
        executions=10,
        processes=3,
        variables=variables,
    )
    for state, variables in (("on", ()), ("off", (("XLA_FLAGS", "--xla_gpu_enable_command_buffer="),)))
)


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Every setting that this machine has."""
    settings = (CPU, *GPU) if bench.device is not None and bench.cuda is not None else (CPU,)
    libraries = {language: _build_handlers(bench, language) for language in {each.language for each in settings}}
    return tuple(
        figure for setting in settings for figure in _measure_setting(bench, setting, libraries[setting.language])
    )


def _build_handlers(bench: Bench, language: str) -> dict[str, Path]:
    """Compile the hand-written handlers; the library of each header."""
    folder = bench.folder("handlers")
    libraries = {header: folder / f"{stem}.so" for header, stem in FILES.items()}
    for header, stem in FILES.items():
        source = KERNELS / f"{stem}.{'cu' if language == 'cuda' else 'cc'}"
        bench.timed(_handler_command(bench, language, source, libraries[header]))
    return libraries


def _handler_command(bench: Bench, language: str, source: Path, library: Path) -> tuple[str, ...]:
    include = f"-I{ffi_include_dir()}"
    if language == "cuda":
        return nvcc_command(bench, source, library, include)
    flags = ("-shared", "-O3", "-std=c++17", "-fPIC", include)
    return (str(bench.cxx.path), *flags, str(source), "-o", str(library))


def _measure_setting(bench: Bench, setting: Setting, libraries: dict[str, Path]) -> Iterator[Figure]:
    """One figure for each form of program and each hand-written handler."""
    job = bench.folder("job") / "job.json"
    rounds = bench.rounds(setting.rounds, quick=5)
    cache = bench.folder("cache")
    runs = []
    for process in range(2 if bench.quick else setting.processes):
        first = process % (1 + len(libraries))
        job.write_text(json.dumps(_job(setting, rounds, libraries, first)), encoding="utf-8")
        runs.append(bench.child("calls.py", str(job), cache=cache, **dict(setting.variables)))
    for form, shown in FORMS.items():
        samples = {target: tuple(value for run in runs for value in run[form][target]) for target in runs[0][form]}
        for header, goal in GOALS.items():
            yield Figure(
                label=f"call, {setting.label}, {shown}",
                ours=samples[OURS],
                baseline=f"handler on {header}",
                theirs=samples[header],
                goal=goal,
                within_noise=header == "c_api.h",
                block=rounds,
            )
        if REDIRECTED in samples:
            yield Figure(
                label=f'call with default_stream="xla", {setting.label}, {shown}',
                ours=samples[REDIRECTED],
                baseline="launch on the stream",
                theirs=samples[OURS],
                goal=1.0,
                within_noise=True,
                block=rounds,
            )


def _job(setting: Setting, rounds: int, libraries: dict[str, Path], first: int) -> dict[str, object]:
    """What `children/calls.py` is told; `first` is the contestant whose programs are made first."""
    language = setting.language
    return {
        "language": language,
        "source": str(KERNELS / f"vector_add.{'cu' if language == 'cuda' else 'cc'}"),
        "handlers": {header: str(library) for header, library in libraries.items()},
        "elements": setting.elements,
        "lengths": setting.lengths,
        "rounds": rounds,
        "executions": setting.executions,
        "first": first,
    }


ROW = Row(measure=measure)
