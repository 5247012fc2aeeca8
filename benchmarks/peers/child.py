"""What the scripts of all peers do: load one vector-add, say how long it took, and time calls of it.

This runs in the peers' environment, and imports nothing of a peer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a script is told.

    Parameters
    ----------
    name : str
        Of the module.
    language : {"cpp", "cuda", "nvrtc"}
    source : str
        The file to load.
    archs : str
        As ``compute_capability``; ``-`` for those of the devices.
    library : str
        Where a peer without a cache keeps what it compiles.
    command : tuple of str
        Compiles the source to that library.
    calls : dict or None
        Of the programs that time calls: ``elements``, ``lengths``, ``executions`` and ``rounds``; None for no calls.
    """

    name: str
    language: str
    source: str
    archs: str
    library: str
    command: tuple[str, ...]
    calls: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The source."""
        return Path(self.source).read_text(encoding="utf-8")

    @property
    def capability(self) -> str | None:
        """The ``compute_capability`` of `be_runtime` and brainevent."""
        return None if self.archs == "-" else self.archs


def run(load: Callable[[Job], str]) -> None:
    """Do the job of the command line and print the seconds.

    Parameters
    ----------
    load : callable
        Compiles what is not compiled yet, loads it, and returns the name of its FFI target.
    """
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    start = time.perf_counter()
    target = load(job)
    seconds = {"load": time.perf_counter() - start}
    if job.calls is not None:
        seconds["call"] = _seconds_a_call(target, **job.calls)
    print(json.dumps(seconds))


def _seconds_a_call(target: str, elements: int, lengths: Sequence[int], executions: int, rounds: int) -> float:
    """Of one call inside a jitted program: the difference of two lengths leaves the dispatch out."""
    from benchmarks.children.calls import chain, fastest

    short, long = lengths
    x, y = jax.numpy.zeros(elements, "float32"), jax.numpy.ones(elements, "float32")
    programs = {length: chain(target, length) for length in lengths}
    for length, program in programs.items():
        assert (program(x, y) == length).all(), "the handler computes something else"
        fastest(program, x, y, 5)
    taken = [
        fastest(programs[long], x, y, executions) - fastest(programs[short], x, y, executions) for _ in range(rounds)
    ]
    return median(taken) / (long - short)
