"""Time calls with scratch memory or state inside jitted programs, beside others: ``memory_calls.py JOB.json``.

What is printed is, for each contestant, the seconds of one call in each round.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import be_runtime
from benchmarks.children.launches import Function, measure


def by_target(target: str, scratch_bytes: int) -> Function:
    """A call of a target that has so much declared scratch memory, or none."""

    def call(x: jax.Array, y: jax.Array) -> Any:
        outs = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
        outs += [jax.ShapeDtypeStruct((scratch_bytes,), jnp.uint8)] * bool(scratch_bytes)
        return jax.ffi.ffi_call(target, outs)(x, y)[0]

    return call


def register(job: dict[str, Any]) -> None:
    """Make all targets known: ours, and those written by hand."""
    load = be_runtime.load_cuda_inline if job["language"] == "cuda" else be_runtime.load_cpp_inline
    load("plain", Path(job["plain"]).read_text(encoding="utf-8"))
    load("ours", Path(job["source"]).read_text(encoding="utf-8"))
    if not job["handlers"]:
        return
    library = ctypes.CDLL(job["handlers"])
    capsule = {
        name: jax.ffi.pycapsule(getattr(library, name)) for name in ("declared", "asked", "planned", "instantiate")
    }
    with_state = {"execute": capsule["planned"], "instantiate": capsule["instantiate"]}
    for name, handler in {"declared": capsule["declared"], "asked": capsule["asked"], "planned": with_state}.items():
        jax.ffi.register_ffi_target(f"theirs.{name}", handler, platform="cpu")


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    register(job)
    calls = {
        target: by_target(target, job["scratch_bytes"] if "declared" in target else 0) for target in job["targets"]
    }
    print(json.dumps(measure("chain", calls, job)))


if __name__ == "__main__":
    main()
