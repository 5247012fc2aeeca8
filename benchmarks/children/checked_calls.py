"""Time calls in checked mode beside the same calls without: ``checked_calls.py JOB.json``.

What is printed is, for each form of call, number of elements and contestant, the seconds of a call in each round.
"""

import contextlib
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

MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "plain": contextlib.nullcontext,
    "checked": be_runtime.debug,
}


def time_calls(program: Callable[..., jax.Array], x: jax.Array, job: dict[str, Any], mode: str) -> float:
    """Seconds of a call in a mode, after one that may have to compile."""
    with MODES[mode]():
        program(x, x).block_until_ready()
        start = time.perf_counter()
        for _ in range(job["executions"]):
            last = program(x, x)
        last.block_until_ready()
        seconds = time.perf_counter() - start
    return seconds / float(job["executions"] * job["calls"])


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    load = be_runtime.load_cuda_inline if job["language"] == "cuda" else be_runtime.load_cpp_inline
    module = load("ours", Path(job["source"]).read_text(encoding="utf-8"))

    def calls(x: jax.Array, y: jax.Array) -> jax.Array:
        for _ in range(job["calls"]):
            x = module.vector_add(x, y, outs=jax.ShapeDtypeStruct(y.shape, y.dtype))
        return x

    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for form, program in (("eager", calls), ("jitted", jax.jit(calls))):
        found[form] = {}
        for elements in job["elements"]:
            x = jnp.ones(elements, jnp.float32)
            samples: dict[str, list[float]] = {mode: [] for mode in MODES}
            for order in alternating(list(MODES), job["rounds"] + 1):
                for mode in order:
                    samples[mode].append(time_calls(program, x, job, mode))
            found[form][str(elements)] = {mode: times[1:] for mode, times in samples.items()}  # the first one warms up
    print(json.dumps(found))


if __name__ == "__main__":
    main()
