"""Time how long a kernel takes until it can be launched: ``first_launch.py nvrtc SOURCE`` or ``first_launch.py numba``.

What is printed is seconds: of the second new kernel of a process by NVRTC, and of a Numba kernel that the cache has,
after ``import numba.cuda``.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import be_runtime


def nvrtc(source: str) -> float:
    """A kernel that no cache has, after another one."""
    text = Path(source).read_text(encoding="utf-8")
    x = jax.ShapeDtypeStruct((1024,), jnp.float32)
    seconds = 0.0
    for number in range(2):
        changed = f"// {time.time_ns()} {number}\n{text}"
        start = time.perf_counter()
        add = be_runtime.cuda_kernel(changed, "add_kernel", lambda x, _: x, grid=4, block=256)
        jax.eval_shape(lambda x, y, add=add: add(x, y, n=1024), x, x)
        seconds = time.perf_counter() - start
    return seconds


def numba() -> float:
    """A kernel of this process's first trace."""
    from numba import cuda  # noqa: F401 - left out of the time

    from benchmarks.kernels.vector_add_numba import add_kernel

    x = jax.ShapeDtypeStruct((1024,), jnp.float32)
    start = time.perf_counter()
    add = be_runtime.numba_cuda_kernel(add_kernel, x, launch_dims=1024)
    jax.eval_shape(add, x, x)
    return time.perf_counter() - start


def main() -> None:
    """Print the seconds."""
    jax.block_until_ready(jnp.zeros(1))
    print(json.dumps(nvrtc(sys.argv[2]) if sys.argv[1] == "nvrtc" else numba()))


if __name__ == "__main__":
    main()
