"""Time calls inside jitted programs, one contestant beside the other: ``calls.py JOB.json``.

The job names the contestants, our source, the lengths of the two programs and how often to measure; what is printed
is, for each form of program and contestant, the seconds of one call in each round.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import be_runtime
from benchmarks.stats import alternating

Program = Callable[[jax.Array, jax.Array], jax.Array]


def call(target: str, x: jax.Array, y: jax.Array) -> Any:
    """One call of a handler."""
    return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)


def chain(target: str, length: int) -> Program:
    """A program of so many calls, each on the result of the one before."""

    def run(x: jax.Array, y: jax.Array) -> jax.Array:
        for _ in range(length):
            x = call(target, x, y)
        return x

    return jax.jit(run)


def loop(target: str, length: int) -> Program:
    """The same as a loop that runs on the device."""

    def run(x: jax.Array, y: jax.Array) -> jax.Array:
        result: jax.Array = jax.lax.fori_loop(0, length, lambda _, value: call(target, value, y), x)
        return result

    return jax.jit(run)


FORMS = {"chain": chain, "loop": loop}


def register(job: dict[str, Any]) -> list[str]:
    """Make every contestant callable; their targets, the job's first one first."""
    platform = "CUDA" if job["language"] == "cuda" else "cpu"
    for target, library in job["handlers"].items():
        handler = jax.ffi.pycapsule(ctypes.CDLL(library).vector_add)
        jax.ffi.register_ffi_target(target, handler, platform=platform)
    source = Path(job["source"]).read_text(encoding="utf-8")
    targets = ["ours.vector_add", *job["handlers"]]
    if job["language"] == "cuda":
        be_runtime.load_cuda_inline("ours", source)
        without = source.replace(", 0, (cudaStream_t)stream>>>", ">>>")
        be_runtime.load_cuda_inline("redirected", without, default_stream="xla")
        targets.append("redirected.vector_add")
    else:
        be_runtime.load_cpp_inline("ours", source)
    return targets[job["first"] :] + targets[: job["first"]]


def fastest(program: Program, x: jax.Array, y: jax.Array, executions: int) -> float:
    """Seconds of the fastest of several executions: what disturbs one only ever makes it slower."""
    best = float("inf")
    for _ in range(executions):
        start = time.perf_counter()
        program(x, y).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return best


def measure(form: str, targets: list[str], job: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of one call, for each target and round."""
    short, long = job["lengths"]
    return compare({target: (FORMS[form](target, short), FORMS[form](target, long)) for target in targets}, job)


def compare(programs: dict[str, tuple[Program, Program]], job: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of one call, for each contestant and round: the difference of two lengths leaves the dispatch out."""
    short, long = job["lengths"]
    x, y = jnp.zeros(job["elements"], jnp.float32), jnp.ones(job["elements"], jnp.float32)
    for pair in programs.values():
        for program, length in zip(pair, (short, long), strict=True):
            assert (program(x, y) == length).all(), "a handler computes something else"
            fastest(program, x, y, 5)
    samples: dict[str, list[float]] = {target: [] for target in programs}
    for order in alternating(list(programs), job["rounds"]):
        for target in order:
            slow, fast = (fastest(program, x, y, job["executions"]) for program in reversed(programs[target]))
            samples[target].append((slow - fast) / (long - short))
    return samples


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    targets = register(job)
    print(json.dumps({form: measure(form, targets, job) for form in FORMS}))


if __name__ == "__main__":
    main()
