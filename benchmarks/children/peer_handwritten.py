"""A handler written by hand and compiled by one command: ``peer_handwritten.py JOB.json``.

As in JAX's guide, https://docs.jax.dev/en/latest/ffi.html.
"""

import ctypes
import subprocess
from pathlib import Path

import jax

from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Compile the handler where that was not done yet, and register it."""
    if not Path(job.library).exists():
        subprocess.run(job.command, check=True)
    handler = jax.ffi.pycapsule(ctypes.CDLL(job.library).vector_add)
    target = f"{job.name}.vector_add"
    jax.ffi.register_ffi_target(target, handler, platform="CUDA" if job.language == "cuda" else "cpu")
    return target


if __name__ == "__main__":
    run(load)
