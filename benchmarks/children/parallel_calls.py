"""Time a kernel on XLA's threads beside the same on one thread: ``parallel_calls.py JOB.json``.

What is printed is, for each size, the seconds of a call on several threads and on one, in each round.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime
from benchmarks.children.calls import fastest
from benchmarks.stats import alternating


def chain(function: str, length: int, **attributes: Any) -> Any:
    """A program of so many calls, each on the result of the one before."""

    def run(x: jax.Array, _: jax.Array) -> Any:
        for _call in range(length):
            x = jax.ffi.ffi_call(f"waves.{function}", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **attributes)
        return x

    return jax.jit(run)


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    be_runtime.load_cpp_inline("waves", Path(job["source"]).read_text(encoding="utf-8"))
    found: dict[str, dict[str, list[float]]] = {}
    for size, length in job["sizes"]:
        x = jnp.linspace(0, 1, size, dtype=jnp.float32)
        grain = np.int64(job["grain"])
        programs = {"together": chain("together", length, grain=grain), "alone": chain("alone", length)}
        assert (programs["together"](x, x) == programs["alone"](x, x)).all(), "a part is wrong"
        samples: dict[str, list[float]] = {name: [] for name in programs}
        for order in alternating(list(programs), job["rounds"]):
            for name in order:
                samples[name].append(fastest(programs[name], x, x, job["executions"]) / length)
        found[str(size)] = samples
    print(json.dumps(found))


if __name__ == "__main__":
    main()
