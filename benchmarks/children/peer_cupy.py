"""CuPy's raw kernels, by NVRTC: ``peer_cupy.py JOB.json``; they are launched by CuPy, not by JAX.

As in https://docs.cupy.dev/en/stable/reference/generated/cupy.RawKernel.html.
"""

import cupy

from benchmarks.peers.child import Job, run

cupy.zeros(1)  # the device's context is no part of a load


def load(job: Job) -> str:
    """Compile the kernel, or take it from CuPy's cache on disk."""
    cupy.RawKernel(f'extern "C" {job.text}', "add_kernel").compile()
    return ""


if __name__ == "__main__":
    run(load)
