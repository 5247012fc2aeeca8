"""A cold load in all processes of a jax.distributed job at once, with empty caches, against one process alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ..bench import HERE, KERNELS, Bench, child_environment
from ..figure import Figure, Row
from ..stats import alternating

ROUNDS = 5
PROCESSES, QUICK_PROCESSES = 32, 3
GOAL = 1.5
_TIMEOUT_S = 600


def measure(bench: Bench) -> tuple[Figure, ...]:
    """With the job's help in turns with one alone; without it once, as that takes long."""
    count = QUICK_PROCESSES if bench.quick else PROCESSES
    samples: dict[str, list[float]] = {"job": [], "alone": []}
    _seconds(bench, 1, cluster=False)
    for order in alternating(tuple(samples), bench.rounds(ROUNDS)):
        for name in order:
            samples[name].append(_seconds(bench, count if name == "job" else 1, cluster=name == "job"))
    job, alone = map(tuple, samples.values())
    without = _seconds(bench, count, cluster=False)
    label = f"cold load_cpp_file in {count} processes"
    return (
        Figure(label=f"{label} of a job, BE_CLUSTER=1", ours=job, baseline="in one process", theirs=alone, goal=GOAL),
        Figure(label=f"{label}, each for itself", ours=(without,), baseline="in one process", theirs=alone[-1:]),
    )


def _seconds(bench: Bench, count: int, *, cluster: bool) -> float:
    """Seconds until the last process has loaded the module."""
    source = KERNELS / "patterns.cc"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    running = [_start(bench, source, number, count, port, cluster=cluster) for number in range(count)]
    try:
        answers = [process.communicate(timeout=_TIMEOUT_S) for process in running]
    finally:
        for process in running:
            process.kill()
    failed = next((error for process, (_, error) in zip(running, answers, strict=True) if process.returncode), None)
    if failed is not None:
        raise RuntimeError(failed)
    return max(float(out.splitlines()[-1]) for out, _ in answers)


def _start(bench: Bench, source: Path, number: int, count: int, port: int, *, cluster: bool) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "children" / "job_member.py"), *map(str, (source, number, count, port))]
    variables = {"BE_CLUSTER": "1" if cluster else None, "JAX_PLATFORMS": "cpu"}
    environment = child_environment(os.environ, bench.folder("cache"), variables)
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


ROW = Row(measure=measure)
