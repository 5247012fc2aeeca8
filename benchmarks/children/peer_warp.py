"""Warp's kernels: ``peer_warp.py JOB.json``; the kernel is this file's own, in Warp's Python.

As in https://nvidia.github.io/warp/modules/runtime.html#warp.load_module. ``jax_kernel`` does the same when
JAX traces a call.
"""

import warp as wp

from benchmarks.peers.child import Job, run


@wp.kernel
def add(  # noqa: D103
    a: wp.array(dtype=wp.float32), b: wp.array(dtype=wp.float32), c: wp.array(dtype=wp.float32)
) -> None:
    i = wp.tid()
    c[i] = a[i] + b[i]


wp.init()  # the device's context is no part of a load


def load(_: Job) -> str:
    """Compile the kernel, or take it from Warp's cache."""
    wp.load_module(device="cuda:0")
    return ""


if __name__ == "__main__":
    run(load)
