"""Time calls of a Numba CPU kernel beside a C++ kernel, and from two threads beside one: ``numba_calls.py JOB.json``.

The job is that of `calls.py`, without handlers, and says how long the threads' kernel runs. What is printed is, for
each form of program, the seconds of one call for both kernels in each round; and for the threads, seconds of one call.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numba

import be_runtime
from benchmarks.children import calls
from benchmarks.stats import alternating


@numba.njit  # type: ignore[untyped-decorator]
def vector_add(a: Any, b: Any, out: Any) -> None:
    """The C++ kernel's loop."""
    for i in range(out.size):
        out[i] = a[i] + b[i]


@numba.njit  # type: ignore[untyped-decorator]
def iterate(steps: Any, out: Any) -> None:
    """Arithmetic that touches no memory, for as long as it is told."""
    value = 0.3
    for _ in range(steps[0]):
        value = 3.7 * value * (1 - value)
    out[0] = value


def target_of(kernel: Any, *arguments: jax.Array) -> str:
    """The target of a kernel for some arguments, which are its first inputs."""
    struct = jax.ShapeDtypeStruct(arguments[0].shape, arguments[0].dtype)
    be_runtime.numba_kernel(kernel, struct)(*arguments).block_until_ready()
    prefix = f"be_runtime.numba.{kernel.py_func.__name__}:"
    return next(name for name in be_runtime.list_registered_targets() if name.startswith(prefix))


def time_calls(job: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Seconds of one call, in every form of program."""
    be_runtime.load_cpp_inline("ours", Path(job["source"]).read_text(encoding="utf-8"))
    x = jnp.zeros(job["elements"], jnp.float32)
    targets = {target_of(vector_add, x, x): "numba", "ours.vector_add": "cpp"}
    measured = {form: calls.measure(form, list(targets), job) for form in calls.FORMS}
    return {form: {targets[name]: samples for name, samples in each.items()} for form, each in measured.items()}


def time_threads(job: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of one call when one thread makes them, and when two do; the calls in all are the same."""
    steps = jnp.array([job["thread_steps"]], jnp.int32)
    run = jax.jit(be_runtime.numba_kernel(iterate, jax.ShapeDtypeStruct((1,), jnp.float32)))
    count = job["thread_calls"]

    def work(times: int) -> None:
        for _ in range(times):
            run(steps).block_until_ready()

    def seconds(pool: ThreadPoolExecutor, shares: Sequence[int]) -> float:
        start = time.perf_counter()
        list(pool.map(work, shares))
        return (time.perf_counter() - start) / float(count)

    samples: dict[str, list[float]] = {"two": [], "one": []}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (3, 3)))
        for order in alternating(("two", "one"), job["thread_rounds"]):
            for name in order:
                shares = (count // 2, count // 2) if name == "two" else (count,)
                samples[name].append(seconds(pool, shares))
    return samples


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps({"calls": time_calls(job), "threads": time_threads(job)}))


if __name__ == "__main__":
    main()
