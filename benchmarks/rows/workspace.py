"""Scratch memory in a call, declared and asked for, against a call without it and handlers written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from be_runtime.jax.port import ffi_include_dir

from ..bench import KERNELS, Bench
from ..figure import Figure, Row
from .calls import CPU, GPU, Setting

PLAIN = "plain.vector_add"
SCRATCH_BYTES = {"cpp": 1 << 16, "cuda": 1 << 20}
KINDS = {"declared": "declared scratch", "asked": "scratch requested at run time"}
GOALS = {"declared": 1.05, "asked": 1.15, "planned": 1.05}
"""Against a handler by hand, which checks none of its buffers, and has memory of one size for a whole thread."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Both forms."""
    return measure_kinds(bench, KINDS, "scratch")


def measure_kinds(bench: Bench, kinds: dict[str, str], memory: str) -> Iterator[Figure]:
    """Entry points of `memory.cc` and `memory.cu` by their names, and what the table calls them and their memory."""
    for setting in (CPU, *GPU) if bench.device is not None and bench.cuda is not None else (CPU,):
        bases = ("ours", "theirs") if setting.language == "cpp" else ("ours",)
        targets = [PLAIN, *(f"{base}.{kind}" for base in bases for kind in kinds)]
        samples, rounds = _samples(bench, setting, targets)
        for kind, shown in kinds.items():
            for target, baseline in ((PLAIN, f"call without {memory}"), (f"theirs.{kind}", "handler on c_api.h")):
                if target in samples:
                    yield Figure(
                        label=f"call with {shown}, {setting.label}",
                        ours=samples[f"ours.{kind}"],
                        baseline=baseline,
                        theirs=samples[target],
                        goal=None if target == PLAIN else GOALS[kind],
                        within_noise=target != PLAIN,
                        block=rounds,
                    )


def _samples(bench: Bench, setting: Setting, targets: Sequence[str]) -> tuple[dict[str, tuple[float, ...]], int]:
    """The samples of each target, and how many of them come from one process."""
    suffix = "cu" if setting.language == "cuda" else "cc"
    cache, job = bench.folder("cache"), bench.folder("job") / "job.json"
    rounds = bench.rounds(setting.rounds, quick=5)
    described = {
        "language": setting.language,
        "plain": str(KERNELS / f"vector_add.{suffix}"),
        "source": str(KERNELS / f"memory.{suffix}"),
        "handlers": str(_handlers(bench)) if setting.language == "cpp" else "",
        "scratch_bytes": SCRATCH_BYTES[setting.language],
        "elements": setting.elements,
        "lengths": setting.lengths,
        "rounds": rounds,
        "executions": setting.executions,
    }
    runs = []
    for process in range(2 if bench.quick else setting.processes):
        first = process % len(targets)
        job.write_text(json.dumps(described | {"targets": [*targets[first:], *targets[:first]]}), encoding="utf-8")
        runs.append(bench.child("memory_calls.py", str(job), cache=cache, **dict(setting.variables)))
    return {target: tuple(value for run in runs for value in run[target]) for target in targets}, rounds


def _handlers(bench: Bench) -> Path:
    """The hand-written handlers, compiled."""
    library = bench.folder("handlers") / "memory_c_api.so"
    flags = ("-shared", "-O3", "-std=c++17", "-fPIC", f"-I{ffi_include_dir()}")
    bench.timed((str(bench.cxx.path), *flags, str(KERNELS / "memory_c_api.cc"), "-o", str(library)))
    return library


ROW = Row(measure=measure)
